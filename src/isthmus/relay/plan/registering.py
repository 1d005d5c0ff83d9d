"""When the relay speaks to the discovery service, and what an answer means for the next time (PW-2, PW-4).

registrar.py asks `due_at`, sends, and tells what came of it. A renewal is due at the interval of the last
answer, by chance up to a tenth sooner or later; at once where what is registered has changed, though not
within a second of the last; after a failure in 1, 2, 4 ... seconds, at most the interval. Whatever comes, the
next time is never further away than that: a refusal may be over by then, as where another run of this relay
holds the pool until its lease ends. Pure: time and chance are arguments.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from isthmus.api.pools import Grant

FIRST_INTERVAL_S: Final = 5.0
"""Until the first answer says what it is."""
MIN_INTERVAL_S: Final = 0.1
"""No service makes a relay ask more often than this."""
MIN_GAP_S: Final = 1.0
"""Between two registrations because of changes."""
FIRST_RETRY_S: Final = 1.0
JITTER: Final = 0.1

Standing = Literal["unregistered", "registered", "superseded", "refused", "failing"]
"""`superseded`: another run of this relay holds the pool; `refused`: the service does not take what is sent;
`failing`: it could not be asked."""


class Asked(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where the registration stands. Times are monotonic; `until` is when the lease ends, None without one.
    `sent` is the revision that was taken last, -1 for none; `problem` is for people."""

    standing: Standing = "unregistered"
    due: float = 0.0
    last: float | None = None
    interval_s: float = FIRST_INTERVAL_S
    failures: int = 0
    sent: int = -1
    until: float | None = None
    pool_id: str = ""
    problem: str = ""


def due_at(asked: Asked, revision: int) -> float:
    """When to send next, where `revision` is that of what there is to be said."""
    if asked.failures or revision == asked.sent or asked.standing != "registered":
        return asked.due
    return min(asked.due, (asked.last or 0.0) + MIN_GAP_S)


def granted(asked: Asked, grant: Grant, revision: int, now: float, chance: float) -> Asked:
    """The service has taken `revision`. `chance` is from 0 to 1."""
    interval = max(MIN_INTERVAL_S, grant.heartbeat_interval_secs)
    return replace(
        asked,
        standing="registered",
        due=now + interval * (1 + JITTER * (2 * chance - 1)),
        last=now,
        interval_s=interval,
        failures=0,
        sent=revision,
        until=now + grant.lease_duration_secs,
        pool_id=grant.pool_id,
        problem="",
    )


def failed(
    asked: Asked, standing: Standing, problem: str, now: float, *, retry_after_s: float = 0.0
) -> Asked:
    """It was not taken. `retry_after_s` is what the service asks for, and is kept to up to the interval."""
    failures = asked.failures + 1
    pause = FIRST_RETRY_S * 2.0 ** min(failures - 1, 16)
    if standing in ("superseded", "refused"):
        pause = asked.interval_s
    pause = min(asked.interval_s, max(pause, retry_after_s))
    until = asked.until if asked.until is not None and asked.until > now else None
    return replace(
        asked,
        standing=standing,
        due=now + pause,
        last=now,
        failures=failures,
        until=until,
        problem=problem,
    )


def standing_of(status: int, code: str) -> Standing:
    """What an answer that is no grant means. A lower revision than the service knows (`stale_revision`) can
    only come of requests that overtook each other: the next one has the present revision."""
    if status == 409 and code == "stale_incarnation":
        return "superseded"
    if status in (400, 401, 403, 404, 405, 413, 415, 422):
        return "refused"
    return "failing"
