"""Guards are found, named and broken one at a time, and the list of survivors is of guards that there are."""

from __future__ import annotations

import ast

import pytest
from scripts.mutate import ROOMS, broken, guards, guards_of, reasons

SOURCE = """
def f(a, b):
    if a and b > 1:
        return [x for x in b if x]
    return 1 if a else 2
"""


def test_each_guard_must_have_a_name_of_its_own_and_be_broken_alone() -> None:
    found = guards("src/isthmus/x.py", SOURCE)
    texts = {each.name.removeprefix("x.py:f: "): ast.unparse(broken(SOURCE, each)) for each in found}
    assert len(texts) == len(found)
    assert "if True and b > 1:" in texts["without `a`"]
    assert "if a and True:" in texts["without `b > 1`"]
    assert "b >= 1" in texts["edge of `b > 1`"]
    assert "[x for x in b if True]" in texts["always `x`"]
    assert "return 1 if False else 2" in texts["never `a`"]


def test_repeated_guards_must_be_told_apart() -> None:
    names = [
        each.name for each in guards("y.py", "def f(a):\n    if a:\n        pass\n    if a:\n        pass\n")
    ]
    assert names == ["y.py:f: never `a`", "y.py:f: never `a` #2"]


@pytest.mark.parametrize("room", ROOMS)
def test_names_must_be_unique_in_a_room(room: str) -> None:
    names = [each.name for each in guards_of(ROOMS[room])]
    assert len(names) == len(set(names))
    assert len(names) >= {"modelserving": 150}.get(room, 60)


def test_survivors_must_be_guards_that_there_are_each_with_a_reason() -> None:
    there = {each.name for room in ROOMS.values() for each in guards_of(room)}
    assert reasons().keys() <= there
    assert all(len(reason) > 20 for reason in reasons().values())
