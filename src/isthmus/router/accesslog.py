"""One line per request: who asked for what, which pools were tried, how it ended and how long it took.

proxy.py writes a Line when a request is over. It goes through structlog as everything else does, with
constant text and fields; `enabled` turns it off where a mesh already has it. Nothing of bodies or
credentials is in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from isthmus import logs

_log = logs.get(__name__)


class Line(NamedTuple):
    """What is told of one request. Seconds from its arrival; `note` says what went wrong after the status."""

    request_id: str
    trace: str
    path: str
    model: str
    status: int
    pool: str
    attempts: tuple[str, ...]
    stream: bool
    request_bytes: int
    answer_bytes: int
    first_byte_s: float | None
    whole_s: float
    peer: str
    note: str


class AccessLog:
    """See the module."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled

    def write(self, line: Line) -> None:
        """Write it, unless the log is off."""
        if not self._enabled:
            return
        fields: dict[str, Any] = line._asdict()
        fields["trace"] = line.trace[3:35]
        fields["whole_s"] = round(line.whole_s, 4)
        fields["first_byte_s"] = None if line.first_byte_s is None else round(line.first_byte_s, 4)
        fields["attempts"] = ",".join(line.attempts)
        _log.info("request", **{key: value for key, value in fields.items() if value not in (None, "")})
