from __future__ import annotations

import io

import pytest
from rich.console import Console

from isthmus.cli.dumps import visible
from isthmus.cli.tree import cache_tree, decision_tree
from isthmus.modelserving.dto import CacheDump, Decision, DecisionDump, PlannedAction, ServingGroupDTO
from tests.support.dumps import group, instance


def show(dump: CacheDump) -> list[str]:
    return printed(cache_tree(dump)).splitlines()


def printed(what: object, *, color: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=200, highlight=False, force_terminal=color, color_system="standard" if color else None
    )
    console.print(what)
    return out.getvalue()


def test_a_tree_must_have_groups_roles_instances_and_pods() -> None:
    lines = show({"default/demo": {"demo-0": group("demo-0", instances=1)}})
    assert [line.rstrip() for line in lines] == [
        "default/demo  1 group",
        "└── demo-0  Running  759bf7cf75",
        "    └── prefill  1 instance",
        "        └── prefill-0  Running  5cc6fc8695",
        "            └── demo-0-prefill-0-0",
    ]


def test_what_is_not_ready_must_stand_out_without_colour_on_every_level_above_it() -> None:
    roles = {"prefill": {"prefill-0": instance("prefill-0"), "prefill-1": instance("prefill-1", "Deleting")}}
    dump = {
        "a/bad": {"bad-0": ServingGroupDTO("bad-0", ["bad-0-prefill-0-0"], "r", "Creating", roles)},
        "a/good": {"good-0": group("good-0")},
    }
    marked = [line.strip("│├└─ ") for line in show(dump) if "!" in line]
    assert marked == [
        "! a/bad  1 group, 1 not ready",
        "! bad-0  Creating  r",
        "! prefill  2 instances, 1 not ready",
        "! prefill-1  Deleting  5cc6fc8695",
    ]


def test_colours_must_tell_states_apart() -> None:
    text = printed(
        cache_tree({"a/b": {"b-0": group("b-0"), "b-1": group("b-1", status="Creating")}}), color=True
    )
    assert "\x1b[32mb-0  Running" in text
    assert "\x1b[1;33m! b-1  Creating" in text


def test_ordinals_must_be_in_the_order_in_which_people_count() -> None:
    names = [f"demo-{index}" for index in (10, 9, 2, 1)]
    lines = show({"default/demo": {name: group(name, instances=11) for name in names}})
    assert [line.split()[1] for line in lines if line.startswith(("├── ", "└── "))] == [
        "demo-1",
        "demo-2",
        "demo-9",
        "demo-10",
    ]
    pods = [line.rpartition(" ")[2] for line in lines if "demo-1-prefill" in line]
    assert pods == [f"demo-1-prefill-{index}-0" for index in range(11)]


def test_pods_of_similar_instances_must_not_be_mixed_up() -> None:
    roles = {"a": {"a-1": instance("a-1")}, "a-1": {"a-1-0": instance("a-1-0")}}
    dump = {"x/m": {"m-0": ServingGroupDTO("m-0", ["m-0-a-1-0", "m-0-a-1-0-0"], "r", "Running", roles)}}
    lines = [line.strip("│├└─ ") for line in show(dump)]
    assert lines[lines.index("a-1  Running  5cc6fc8695") + 1] == "m-0-a-1-0"
    assert lines[lines.index("a-1-0  Running  5cc6fc8695") + 1] == "m-0-a-1-0-0"


def test_a_pod_of_no_instance_must_be_shown() -> None:
    dump = {"x/m": {"m-0": ServingGroupDTO("m-0", ["m-0-gone-0-0"], "r", "Running", {})}}
    assert any("! m-0-gone-0-0 belongs to no instance" in line for line in show(dump))


def test_an_empty_dump_must_say_so() -> None:
    assert show({}) == ["no ModelServing"]
    assert printed(decision_tree({})) == "no decision\n"
    assert show({"a/b": {}}) == ["a/b  0 groups"]


def test_decisions_must_say_what_was_seen_planned_and_why() -> None:
    planned = [PlannedAction("create", f"pod {index}", "missing") for index in range(25)]
    dump: DecisionDump = {
        "a/b": [Decision("a", "b", "T", {"groups": 2, "pods": 3}, planned, "done", 0.0014, "pod")]
    }
    lines = [line.strip("│├└─ ") for line in printed(decision_tree(dump)).splitlines()]
    assert lines[:4] == [
        "a/b",
        "T  done  in 0.001 s  because of pod",
        "saw groups 2, pods 3",
        "create pod 0  missing",
    ]
    assert lines[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-1.é", "plain-1.é"),
        ("a\x1b[31m", "a\\u{1b}[31m"),
        ("a\nb\tc\x00", "a\\u{a}b\\u{9}c\\u{0}"),
        ("\u202eb\u200b\u2066", "\\u{202e}b\\u{200b}\\u{2066}"),
        ("\u009b2J", "\\u{9b}2J"),
        ("\U000e0041", "\\u{e0041}"),
    ],
)
def test_visible_must_escape_what_terminals_act_on_or_hide(text: str, shown: str) -> None:
    assert visible(text) == shown
