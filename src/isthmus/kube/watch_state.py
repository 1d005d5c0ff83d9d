"""List and watch as a pure state machine: what was heard goes in, what the sink must do comes out.

watch.py is the shell: it does what `State.phase` says (pause, fetch a page, open a watch, read lines), feeds
each outcome to `step`, and carries out the effects. Kept here, whatever the server sends and in any order:
the sink's content is that of the version in `State.resource_version` while a watch is open; a version that
was called expired is never used again (R21); between two lists, and between two watches that did not live
long, lies a pause that grows (no hot loop); what cannot be resumed is listed anew, which shows what vanished
(R19), and so does a list every half hour, which heals a watch that went silently deaf. Time and chance are
arguments.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from isthmus.api.meta import Object
from isthmus.kube.answers import Page, Undecodable


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, and counts. `base_s` to `cap_s`: the pauses after failures. `healthy_s`: a watch that lived
    this long ends the run of failures. `resume_s`: the pause after a watch that brought something and was
    ended early, as a busy server does with all that cannot be served fast enough: no failure, and no time to
    lose. `relist_s`: between full lists, give or take `relist_spread` of it.
    `stuck_limit`: failures at one version, of a kind that going on may never heal, before a list."""

    base_s: float = 0.25
    cap_s: float = 15.0
    healthy_s: float = 20.0
    resume_s: float = 0.05
    relist_s: float = 1800.0
    relist_spread: float = 0.2
    stuck_limit: int = 3


class Phase(enum.Enum):
    """What the shell does next."""

    PAUSED = "wait until pause_until, then feed a Tick"
    LISTING = "fetch the page at continue_"
    CONNECTING = "open a watch at resource_version"
    STREAMING = "read the watch"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is remembered. `resource_version` "" means that a list must come first; `moved`: the
    open watch has brought something."""

    phase: Phase = Phase.LISTING
    resource_version: str = ""
    pages: tuple[Page[Any], ...] = ()
    continue_: str = ""
    paged: bool = True
    failures: int = 0
    stuck: int = 0
    pause_until: float = 0.0
    opened_at: float = 0.0
    moved: bool = False
    relist_at: float = 0.0


class Failure(enum.Enum):
    """Why a list, a watch or an ERROR event failed; the value names it in metrics and logs."""

    EXPIRED = "expired"
    TOO_LARGE = "too_large_resource_version"
    THROTTLED = "throttled"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    LOST = "connection_lost"
    SERVER = "server_error"
    OTHER = "refused"


class Arrived(msgspec.Struct, frozen=True):
    """A page of the list."""

    page: Page[Any]


class Opened(msgspec.Struct, frozen=True):
    """The server has accepted the watch."""


class Failed(msgspec.Struct, frozen=True):
    """A list or a watch was refused or lost, or the stream carried an error (410 in any form comes here)."""

    kind: Failure
    retry_after_s: float = 0.0


class Upserted(msgspec.Struct, frozen=True, gc=False):
    """ADDED or MODIFIED."""

    object: Object


class Removed(msgspec.Struct, frozen=True, gc=False):
    """DELETED."""

    object: Object


class Bookmarked(msgspec.Struct, frozen=True, gc=False):
    """BOOKMARK: nothing else happened up to this version."""

    resource_version: str


class Skipped(msgspec.Struct, frozen=True):
    """A change of an object that does not fit its type."""

    resource_version: str
    undecodable: Undecodable


class Unknown(msgspec.Struct, frozen=True):
    """An event of a type that this program does not know."""

    type: str


class Garbled(msgspec.Struct, frozen=True):
    """A complete line that is no event, or one without an end."""

    text: str


class Ended(msgspec.Struct, frozen=True):
    """The server has ended the stream properly."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


Input = (
    Arrived | Opened | Failed | Upserted | Removed | Bookmarked | Skipped | Unknown | Garbled | Ended | Tick
)


class Replace(msgspec.Struct, frozen=True):
    """The sink's content is now this, and nothing else."""

    items: list[Any]
    resource_version: str


class Upsert(msgspec.Struct, frozen=True, gc=False):
    """Put this object."""

    object: Object


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Take this object away."""

    object: Object


class Report(msgspec.Struct, frozen=True):
    """For log and metrics: an interruption, or something passed over. `pause_s`: until the next try."""

    cause: str
    detail: str = ""
    pause_s: float = 0.0
    undecodable: tuple[Undecodable, ...] = ()


Effect = Replace | Upsert | Remove | Report
Outcome = tuple[State, tuple[Effect, ...]]

_STUCK: Final = frozenset((Failure.TOO_LARGE, Failure.OTHER))
_replace: Final = msgspec.structs.replace


def step(state: State, event: Input, *, now: float, jitter: float, settings: Settings) -> Outcome:
    """The next state and what the sink must do. `now` is monotonic, `jitter` in [0, 1).

    Total: an input that makes no sense in the phase changes nothing.
    """
    if state.phase is Phase.STREAMING:
        return _in_stream(state, event, now, jitter, settings)
    match event:
        case Arrived(page=page) if state.phase is Phase.LISTING:
            return _arrived(state, page, now, jitter, settings)
        case Opened() if state.phase is Phase.CONNECTING:
            return _replace(state, phase=Phase.STREAMING, opened_at=now, moved=False), ()
        case Failed() if state.phase is not Phase.PAUSED:
            return _failed(state, event, now, jitter, settings)
        case Tick():
            return _tick(state, now), ()
        case _:
            return state, ()


def _in_stream(state: State, event: Input, now: float, jitter: float, settings: Settings) -> Outcome:
    match event:
        case Upserted(object=obj):
            return _moved(state, obj.metadata.resource_version), (Upsert(obj),)
        case Removed(object=obj):
            return _moved(state, obj.metadata.resource_version), (Remove(obj),)
        case Bookmarked(resource_version=version):
            return _moved(state, version), ()
        case Skipped(resource_version=version, undecodable=undecodable):
            return _moved(state, version), (Report("undecodable", undecodable=(undecodable,)),)
        case Unknown(type=type_):
            return state, (Report("unknown_event", detail=type_),)
        case Garbled(text=text):
            outcome = _failed(state, Failed(Failure.OTHER), now, jitter, settings)
            return outcome[0], (_replace(outcome[1][0], cause="garbled", detail=text),)
        case Failed():
            return _failed(state, event, now, jitter, settings)
        case Ended() if now - state.opened_at >= settings.healthy_s:
            return _replace(state, phase=Phase.CONNECTING, failures=0), ()
        case Ended() if state.moved:
            pause_until = now + settings.resume_s * (0.5 + jitter / 2)
            return _replace(state, phase=Phase.PAUSED, failures=0, pause_until=pause_until), ()
        case Ended():
            return _paused(state, Report("ended_early"), 0.0, (now, jitter, settings))
        case Tick():
            return _tick(state, now), ()
        case _:
            return state, ()


def _moved(state: State, version: str) -> State:
    if not version or version == state.resource_version:
        return state
    return _replace(state, resource_version=version, stuck=0, moved=True)


def _arrived(state: State, page: Page[Any], now: float, jitter: float, settings: Settings) -> Outcome:
    pages = (*state.pages, page)
    if page.continue_:
        return _replace(state, pages=pages, continue_=page.continue_), ()
    undecodable = tuple(item for each in pages for item in each.undecodable)
    items = pages[0].items if len(pages) == 1 else [item for each in pages for item in each.items]
    # Every page says the same version: that of the instant which the whole list shows.
    version = page.resource_version
    spread = 1 + settings.relist_spread * (2 * jitter - 1)
    after = _replace(
        state,
        phase=Phase.CONNECTING,
        resource_version=version,
        pages=(),
        continue_="",
        paged=True,
        stuck=0,
        relist_at=now + settings.relist_s * spread,
    )
    effects: tuple[Effect, ...] = (Replace(items, version),)
    if undecodable:
        effects += (Report("undecodable", undecodable=undecodable),)
    if not version:  # no API server does this; a watch from nowhere would miss what changes meanwhile
        after, reports = _paused(after, Report("list_without_version"), 0.0, (now, jitter, settings))
        return after, effects + reports
    return after, effects


def _failed(
    state: State, failed: Failed, now: float, jitter: float, settings: Settings
) -> tuple[State, tuple[Report, ...]]:
    kind = failed.kind
    if state.phase is Phase.LISTING:
        # A continue token dies with its list. Twice in a row: this list is too long for its pages.
        again = kind is Failure.EXPIRED and bool(state.continue_)
        state = _replace(state, pages=(), continue_="", paged=state.paged and not (again and state.stuck > 0))
        state = _replace(state, stuck=state.stuck + 1) if again else state
    elif kind is Failure.EXPIRED:
        state = _replace(state, resource_version="", stuck=0)
    elif kind in _STUCK:
        stuck = state.stuck + 1
        if stuck >= settings.stuck_limit:
            state = _replace(state, resource_version="", stuck=0)
        else:
            state = _replace(state, stuck=stuck)
    return _paused(state, Report(kind.value), failed.retry_after_s, (now, jitter, settings))


def _paused(
    state: State, report: Report, at_least_s: float, context: tuple[float, float, Settings]
) -> tuple[State, tuple[Report, ...]]:
    now, jitter, settings = context
    lived = state.phase is Phase.STREAMING and now - state.opened_at >= settings.healthy_s
    failures = 1 if lived else state.failures + 1
    delay = min(settings.cap_s, settings.base_s * 2 ** min(failures - 1, 30)) * (0.5 + jitter / 2)
    delay = max(delay, at_least_s * (1 + jitter / 4))
    after = _replace(state, phase=Phase.PAUSED, failures=failures, pause_until=now + delay)
    return after, (_replace(report, pause_s=delay),)


def _tick(state: State, now: float) -> State:
    if state.phase is Phase.PAUSED:
        if now < state.pause_until:
            return state
        state = _replace(state, phase=Phase.CONNECTING if state.resource_version else Phase.LISTING)
    if state.phase is not Phase.LISTING and now >= state.relist_at:
        return _replace(state, phase=Phase.LISTING, resource_version="", stuck=0)
    return state
