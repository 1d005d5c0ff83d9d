"""The global demo fails where a request was not served that could have been."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.cli import globaldemo
from isthmus.errors import UserError
from isthmus.sandbox.ledger import Ledger, Outcome, Result


class Scene:
    """As much of the place as a demo needs that has no steps: everything is there."""

    class sandbox:
        stopped = False

        @classmethod
        def stop(cls) -> None:
            cls.stopped = True


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plays the demo with steps that end in these results, in place of control planes."""

    def play(*results: Result, lost: str = "") -> None:
        class Traffic:
            def __init__(self, *_: object, **__: object) -> None:
                self.ledger = Ledger()

            def __enter__(self) -> Traffic:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        def steps(play: Any) -> None:
            for each in results:
                play._traffic.ledger.add(each)
            play._tell(lost)

        monkeypatch.setattr(globaldemo, "Traffic", Traffic)
        monkeypatch.setattr(globaldemo, "_make_scene", lambda story, keep: Scene())
        monkeypatch.setattr(globaldemo, "_bring_up", lambda scene, story: "http://127.0.0.1:1")
        monkeypatch.setattr(globaldemo._Play, "all", steps)
        monkeypatch.setattr("signal.signal", lambda number, handler: None)
        globaldemo.run(keep=False)

    return play


def result(outcome: Outcome, by: str = "", detail: str = "") -> Result:
    return Result(outcome=outcome, began=0.0, ended=1.0, by=by, detail=detail)


def test_demo_must_end_well_where_all_was_served(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    played(result(Outcome.ANSWERED, "east"), result(Outcome.CUT, "west"), lost="west")
    assert "requests since then: 1 answered (east 1), 1 cut, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "bad", [result(Outcome.FAILED, "", "refused"), result(Outcome.CUT, "east", "refused")]
)
def test_demo_must_fail_and_clean_up_where_a_request_was_not_served(
    played: Any, capsys: pytest.CaptureFixture[str], bad: Result
) -> None:
    Scene.sandbox.stopped = False
    with pytest.raises(SystemExit) as ended:
        played(result(Outcome.ANSWERED, "east"), bad, lost="west")
    assert ended.value.code == 1
    told = capsys.readouterr().out
    assert "1 requests could have been served and were not" in told
    assert "refused" in told
    assert Scene.sandbox.stopped


def test_missing_client_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(UserError, match="openai package is not installed"):
        globaldemo.run(keep=False)
