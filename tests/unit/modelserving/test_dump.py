"""The dump has the shape of MS-47, and shows what the planner sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.modelserving.dump import Dump
from isthmus.modelserving.store import Store
from tests.support.clock import FakeClock
from tests.support.serving import NOW, Scene, role, serving, unready_status, with_meta
from tests.unit.modelserving.test_store import Bench


def dumped(store: Store, namespace: str | None = None, name: str | None = None) -> dict[str, Any]:
    snapshot = Dump(store, FakeClock(NOW)).snapshot()
    found: dict[str, Any] = json.loads(b"".join(snapshot.chunks(namespace, name)))
    return found


@pytest.mark.covers("MS-47", "MS-37", "MS-38", "R30")
def test_dump_must_have_the_shape_that_tools_know() -> None:
    bench = Bench()
    scene = Scene(serving(role("p", 2, 1)))
    scene.has_group(0).set_status("a-0-p-1-1", unready_status()).terminate("a-0-p-0")
    bench.scene(scene)
    revision = scene.desired.revision
    instance = {"revision": revision.name, "roleTemplateHash": revision.roles["p"].hash}
    assert dumped(bench.store) == {
        "default/a": {
            "a-0": {
                "name": "a-0",
                "runningPods": ["a-0-p-1-0"],
                "revision": revision.name,
                "status": "Creating",
                "roles": {
                    "p": {
                        "p-0": {"name": "p-0", "status": "Deleting", **instance},
                        "p-1": {"name": "p-1", "status": "Creating", **instance},
                    }
                },
            }
        }
    }


def test_dump_must_leave_out_what_is_no_group_of_ours() -> None:
    bench = Bench()
    scene = bench.scene(Scene(serving(role("p"))).has_group(0))
    pod = scene.pods["a-0-p-0-0"]
    bench.put(with_meta(pod, name="x", uid="x", labels=replace(pod.metadata.labels, group_name="elsewhere")))
    bench.put(*Scene(serving(role("p"), uid="former")).has_group(1).pods.values())
    assert set(dumped(bench.store)["default/a"]) == {"a-0"}


def test_dump_must_be_narrowed_and_sorted() -> None:
    bench = Bench()
    for name in ("b", "a"):
        bench.put(serving(role("p"), name=name, uid=name))
    assert list(dumped(bench.store)) == ["default/a", "default/b"]
    assert list(dumped(bench.store, "default", "b")) == ["default/b"]
    assert dumped(bench.store, "other") == {}
    assert dumped(Bench().store) == {}


@pytest.mark.covers("MS-23", "MS-37")
def test_dump_must_be_the_same_in_whatever_order_objects_came() -> None:
    scene = Scene(serving(role("q"), role("p", 11), replicas=11)).has_groups(*range(11))
    texts = set()
    for turn in (1, -1):
        bench = Bench()
        bench.put(*scene.revisions, scene.serving, *list(scene.pods.values())[::turn])
        texts.add(b"".join(Dump(bench.store, FakeClock(NOW)).snapshot().chunks(None, None)))
    (text,) = texts
    groups = json.loads(text)["default/a"]
    assert list(groups) == [f"a-{number}" for number in range(11)]
    for group in groups.values():
        assert list(group["roles"]) == ["p", "q"]
        assert list(group["roles"]["p"]) == [f"p-{number}" for number in range(11)]
        assert group["runningPods"] == sorted(group["runningPods"])


@pytest.mark.covers("R05", "MS-416", "MS-47")
def test_dump_must_leave_out_what_is_not_ours() -> None:
    bench = Bench()
    scene = bench.scene(Scene(serving(role("p", 4))).has_group(0))
    pod = scene.pods["a-0-p-0-0"]
    (owner,) = pod.metadata.owner_references
    for number, owners in enumerate(
        ((), (replace(owner, uid="former"),), (replace(owner, uid="x", kind="Other", name="x"),))
    ):
        bench.put(with_meta(scene.pods[f"a-0-p-{number}-0"], owner_references=owners))
    group = dumped(bench.store)["default/a"]["a-0"]
    assert group["runningPods"] == ["a-0-p-3-0"]
    assert list(group["roles"]["p"]) == ["p-3"]


def test_dump_must_say_which_caches_are_incomplete() -> None:
    bench = Bench()
    dump = Dump(bench.store, FakeClock(NOW))
    assert "pods" in dump.incomplete()
