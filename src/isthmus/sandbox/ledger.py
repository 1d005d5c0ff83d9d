"""What became of requests: who answered each, which were cut off, which failed. Pure.

traffic.py writes a Result per request into a Ledger; the global demo and its tests ask what happened since a
moment. A request is cut where its answer had begun and did not come to its end: nobody can repeat that
without the client noticing. Everything else that is no whole answer has failed.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import msgspec

KEPT: Final = 1000
"""Results without an answer that are kept, the latest."""


class Outcome(enum.Enum):
    """How a request ended."""

    ANSWERED = "answered"
    CUT = "cut"
    FAILED = "failed"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `began` and `ended` are monotonic seconds; `by` says who answered, as far as is known;
    `detail` what went wrong."""

    outcome: Outcome
    began: float
    ended: float
    by: str = ""
    detail: str = ""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Counts. `answered`: by who answered."""

    answered: dict[str, int] = {}
    cut: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.answered.values()) + self.cut + self.failed

    def minus(self, earlier: Tally) -> Tally:
        """What came on top of an earlier tally."""
        answered = Counter(self.answered)
        answered.subtract(earlier.answered)
        return Tally(
            answered={name: count for name, count in answered.items() if count},
            cut=self.cut - earlier.cut,
            failed=self.failed - earlier.failed,
        )

    def describe(self) -> str:
        """For people: `120 answered (east 61, west 59), 2 cut, 0 failed`."""
        who = ", ".join(f"{name} {count}" for name, count in sorted(self.answered.items()))
        answered = f"{sum(self.answered.values())} answered" + (f" ({who})" if who else "")
        return f"{answered}, {self.cut} cut, {self.failed} failed"


def unserved(troubles: Iterable[Result], *, lost: str = "") -> list[Result]:
    """Those that could have been served: what failed, and what was cut off by anybody but a cluster that is
    lost, whose answers that had begun are nobody's fault."""
    return [each for each in troubles if each.outcome is Outcome.FAILED or not lost or each.by != lost]


class Ledger:
    """See the module."""

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._cut = 0
        self._failed = 0
        self._last: dict[str, float] = {}
        self.troubles: deque[Result] = deque(maxlen=KEPT)

    def add(self, result: Result) -> None:
        """Count one."""
        match result.outcome:
            case Outcome.ANSWERED:
                self._answered[result.by] += 1
                self._last[result.by] = result.ended
                return
            case Outcome.CUT:
                self._cut += 1
            case Outcome.FAILED:
                self._failed += 1
        self.troubles.append(result)

    def tally(self) -> Tally:
        """All so far."""
        return Tally(answered=dict(self._answered), cut=self._cut, failed=self._failed)

    def last_answer(self, by: str) -> float:
        """When somebody's last answer ended; minus infinity where there is none."""
        return self._last.get(by, float("-inf"))
