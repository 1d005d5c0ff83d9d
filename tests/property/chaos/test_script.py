"""Scripts of chaos: a seed says it all, and what it says can be carried out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.sandbox import faults
from tests.chaos.script import NAMES, Kind, script

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(0, 60), st.integers(0, 60))
def test_script_must_be_told_by_its_seed_and_begin_as_a_shorter_one_does(
    seed: int, one: int, other: int
) -> None:
    shorter, longer = sorted((one, other))
    assert script(seed, longer)[:shorter] == script(seed, shorter)
    assert len(script(seed, longer)) == longer


@given(SEEDS)
def test_steps_must_name_what_there_can_be(seed: int) -> None:
    for step in script(seed, 80):
        assert step.name in NAMES
        assert 0.0 <= step.pause_s <= 2.0
        if step.kind is Kind.FAULT:
            assert len(faults.parse(step.value)) == 1
        if step.kind is Kind.CREATE:
            spec = step.value["spec"]
            by_role = spec["rolloutStrategy"]["type"] == "RoleRollingUpdate"
            assert not (by_role and spec["recoveryPolicy"] == "ServingGroupRecreate")  # the CRD refuses it


def test_some_script_must_hold_each_kind() -> None:
    assert {step.kind for seed in range(10) for step in script(seed, 60)} == set(Kind)
