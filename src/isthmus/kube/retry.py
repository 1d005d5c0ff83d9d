"""Whether a request that failed is sent again, and when. Pure.

client.py asks after each failure. What may be repeated depends on whether the server may have acted on it: a
refusal (429) and a request that never left are safe for every verb; a lost answer or a 5xx only for verbs
whose second time changes nothing. Retry-After is honoured; without one the wait doubles, with jitter. The
sum of all waits stays inside the deadline of the call, so a caller never waits longer than it has said.
"""

from __future__ import annotations

from typing import Final

from isthmus.errors import IsthmusError
from isthmus.kube import errors

BASE_S: Final = 0.1
CAP_S: Final = 5.0


def delay_after(
    error: IsthmusError, *, failures: int, repeatable: bool, renewable: bool, jitter: float
) -> float | None:
    """Seconds to wait before the request is sent again, or None where it must not be.

    `failures` counts those so far, this one included; `repeatable`: a second execution does no harm;
    `renewable`: a 401 may pass with credentials that are read again; `jitter` in [0, 1).
    """
    if not _may_repeat(error, repeatable=repeatable, renewable=renewable):
        return None
    delay = backoff(failures, jitter)
    asked = error.retry_after_s if isinstance(error, errors.ApiError) else None
    if asked is not None:
        # Spread over a quarter more, so that all whom the server asked to wait do not come back at once.
        return max(delay, asked * (1 + jitter / 4))
    return delay


def backoff(failures: int, jitter: float, *, base_s: float = BASE_S, cap_s: float = CAP_S) -> float:
    """Seconds: doubling from `base_s` to `cap_s`, of which the upper half is chance."""
    return float(min(cap_s, base_s * 2 ** min(failures - 1, 30)) * (0.5 + jitter / 2))


def _may_repeat(error: IsthmusError, *, repeatable: bool, renewable: bool) -> bool:
    match error:
        case errors.Unreachable():
            return repeatable or not error.sent
        case errors.Throttled():
            return True
        case errors.Unauthorized():
            return renewable
        case errors.TooLargeResourceVersion():
            return False
        case errors.ServerError():
            return repeatable
        case _:
            return False
