"""What an API server or the way to it can answer, as one class per thing that a caller does differently.

kube/client.py raises these and nothing else (except CancelledError). Retryable ones are WorldErrors that the
client has already retried as its policy says; Forbidden, Unauthorized and Invalid are the user's to mend.
Texts from the server are cut at 1,000 characters.
"""

from __future__ import annotations

from isthmus.errors import IsthmusError, UserError, WorldError


class ApiError(IsthmusError):
    """An HTTP answer of 400 or more, with what the Status object in it said.

    `status` HTTP code; `reason` Status.reason ("" if none); `message` Status.message; `retry_after_s` from
    Retry-After or Status.details.retryAfterSeconds; `causes` Status.details.causes as (field, reason,
    message); `what` verb and path.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        what: str = "",
        retry_after_s: float | None = None,
        causes: tuple[tuple[str, str, str], ...] = (),
    ) -> None:
        super().__init__(
            f"{what}: {status} {reason}: {message[:1000]}" if what else f"{status} {reason}: {message[:1000]}"
        )
        self.status = status
        self.reason = reason
        self.message = message
        self.what = what
        self.retry_after_s = retry_after_s
        self.causes = causes


class NotFound(ApiError):
    """404: the object, or the whole resource (a CRD that is not there)."""


class Conflict(ApiError, WorldError):
    """409 for a resourceVersion or UID precondition, or a server-side apply conflict: read again and decide
    again."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists."""


class Expired(ApiError, WorldError):
    """410 in any form: a continue token or resourceVersion that is too old. List again."""


class TooLargeResourceVersion(ApiError, WorldError):
    """504 (or 400) whose cause says that the resourceVersion asked for is still ahead of this server."""


class Invalid(ApiError, UserError):
    """422 or 400: the object breaks a rule of its schema. `causes` name the fields."""

    hint = ""


class Forbidden(ApiError, UserError):
    """403: RBAC or an admission rule. The message names the user, verb and resource."""

    hint = ""

    @property
    def namespace_ends(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted, and all in it with it."""
        return any(reason == "NamespaceTerminating" for _, reason, _ in self.causes)


class Unauthorized(ApiError, UserError):
    """401 that stayed after the credentials were read again."""

    hint = ""


class Throttled(ApiError, WorldError):
    """429: the server's fairness rules, or storage that is initialising. `retry_after_s` says when."""


class ServerError(ApiError, WorldError):
    """500 and above."""


class Unreachable(WorldError):
    """No answer: refused, reset, timed out, TLS failure. The cause is chained. `sent` is False where the
    request surely never left, so that even a create may be tried again."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class WrongAnswer(WorldError):
    """A 2xx whose body is not what the API promises (cut JSON, another type). The cause is chained."""


class WriteRefused(WorldError):
    """A write that was stopped here before it left, since this process may not write now (INV: no write after
    the renew deadline)."""
