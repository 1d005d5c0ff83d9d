from __future__ import annotations

import pytest

from isthmus.graph.plan.env import merged


def variable(name: str, value: str = "") -> dict[str, str]:
    return {"name": name, "value": value}


@pytest.mark.covers("GD-37")
@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({"B": "", "A": ""}, "AB"),
        ({"A": "$(C)/x", "B": "", "C": ""}, "CAB"),
        ({"A": "$(B)", "B": "$(C)", "C": ""}, "CBA"),
        ({"A": "$(C) $(B)", "B": "$(C)", "C": ""}, "CBA"),
        ({"A": "$(B)", "B": "$(A)"}, "BA"),
        ({"A": "$(A)"}, "A"),
        ({"A": "$(ELSEWHERE)", "B": ""}, "AB"),
    ],
)
def test_references_must_come_before_their_users(values: dict[str, str], order: str) -> None:
    layer = [variable(name, value) for name, value in values.items()]
    assert "".join(each["name"] for each in merged(layer)) == order
    assert merged(layer) == merged(layer[::-1])


@pytest.mark.covers("GD-37", "G-9")
def test_later_layer_must_win_by_name_with_all_of_its_variable() -> None:
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert merged([variable("A", "x"), variable("B", "y")], [secret]) == [secret, variable("B", "y")]
