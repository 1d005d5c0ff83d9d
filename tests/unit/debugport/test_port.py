from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.debugport.port import decision_pieces, narrowing, parse_debug_port
from isthmus.errors import UserError
from isthmus.modelserving.dto import PIECE_BYTES, Decision, DecisionDump, PlannedAction
from isthmus.web.routes import Problem, Request
from tests.support.dumps import decision


@pytest.mark.covers("R30")
def test_the_port_must_be_0_or_a_port() -> None:
    assert [parse_debug_port(value) for value in ("0", "8070", 65535)] == [0, 8070, 65535]
    with pytest.raises(UserError, match="--debug-port"):
        parse_debug_port("70000")


def test_long_names_of_parameters_must_not_be_repeated_in_full() -> None:
    request = Request(method="GET", path="/", query=(("x" * 5000, ""),))
    with pytest.raises(Problem) as caught:
        narrowing(request)
    assert len(caught.value.answer.body) < 300  # type: ignore[arg-type]


names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.builds(decision, names, names, st.text(max_size=5)), max_size=20))
def test_decisions_must_be_grouped_and_keep_their_order(kept: list[Decision]) -> None:
    raw = b"".join(decision_pieces(kept))
    dump = msgspec.json.decode(raw, type=DecisionDump)
    expected: DecisionDump = {}
    for each in kept:
        expected.setdefault(f"{each.namespace}/{each.name}", []).append(each)
    assert dump == expected
    assert list(dump) == sorted(dump)


def test_decisions_must_come_in_small_pieces() -> None:
    planned = [PlannedAction("create", f"pod {index}", "missing") for index in range(50)]
    kept = [msgspec.structs.replace(decision(name=f"m-{index % 7}"), planned=planned) for index in range(200)]
    pieces = list(decision_pieces(kept))
    assert len(pieces) > 5
    assert all(len(piece) < PIECE_BYTES + 5000 for piece in pieces)
    assert sum(map(len, msgspec.json.decode(b"".join(pieces)).values())) == 200
