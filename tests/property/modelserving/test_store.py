"""The store against a list: whatever came in which order, its views equal those of a store that was fed with
the same objects at once; it holds nothing of what is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from msgspec.structs import replace

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.modelserving.dump import Snapshot
from isthmus.modelserving.store import Caches, Store
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from tests.property.modelserving.edits import CHANGES
from tests.property.modelserving.test_histories import begin, take
from tests.property.modelserving.world import CALM, FAULTS, World, scripts
from tests.support.serving import role, serving


def caches() -> Caches:
    """Empty ones."""
    return Caches(
        servings=Cache(MODEL_SERVINGS, metrics=Metrics()),
        pods=Cache(SERVING_PODS, metrics=Metrics()),
        services=Cache(SERVING_SERVICES, metrics=Metrics()),
        revisions=Cache(CONTROLLER_REVISIONS, metrics=Metrics()),
        pod_groups=Cache(POD_GROUPS, metrics=Metrics()),
    )


def relabel(world: World, number: int) -> None:
    """Somebody moves an object to another group, instance or ModelServing, or out of sight."""
    kind = ("pods", "services", "controllerrevisions")[number % 3]
    objects: dict[str, Any] = world.objects[kind]
    if not objects:
        return
    obj = objects[sorted(objects)[number // 3 % len(objects)]]
    labels = obj.metadata.labels
    changed = (
        replace(labels, group_name="a-1"),
        replace(labels, role_id="p-1"),
        replace(labels, name="b"),
        replace(labels, group_name="elsewhere"),
        replace(labels, role="q", role_id="q-0"),
        replace(labels, name="a", group_name="a-0", role="p", role_id="p-0"),
    )[number // 64 % 6]
    metadata = replace(obj.metadata, labels=changed)
    if number & 2048:
        metadata = replace(metadata, owner_references=())
    if number & 4096 and kind == "pods":
        owner = replace(metadata.owner_references[0], uid="other") if metadata.owner_references else None
        metadata = replace(metadata, owner_references=(owner,) if owner is not None else ())
    world.put(kind, replace(obj, metadata=metadata))


HALF = max(20, settings().max_examples // 2)
"""These scripts are dear: each step is followed by a whole new store."""
WORDS = (*CALM, *FAULTS, "relabel", "relabel", "gap", "progress", "succeed", "garbage", *CHANGES)


def step(world: World, live: Caches, word: str, number: int) -> None:
    if word == "relabel":
        relabel(world, number)
    elif word == "succeed":
        world.succeed()
    elif word == "garbage":
        world.collect_garbage(number)
    elif word == "gap":
        pass
    elif word not in ("act", "partly", "die", "restart", "progress") or number & 1:
        take(world, word, number)
    # The store under test follows by events, or, after a gap, by a list.
    rows: tuple[tuple[str, Cache[Any]], ...] = (
        ("modelservings", live.servings),
        ("pods", live.pods),
        ("services", live.services),
        ("controllerrevisions", live.revisions),
    )
    for resource, cache in rows:
        now: dict[str, Any] = world.objects[resource]
        if word == "gap":
            cache.replace("", list(now.values()), str(10**9))
            continue
        for old in list(cache.values()):
            if old.metadata.name not in now:
                cache.remove("", replace(old, metadata=replace(old.metadata, resource_version="")))
        for obj in now.values():
            if cache.get(obj.key) is not obj:
                cache.upsert("", replace(obj, metadata=replace(obj.metadata)) if number & 1 else obj)


@pytest.mark.covers("R04", "R05", "R19", "MS-37", "MS-45", "MS-416", "MS-448")
@example(script=[("partly", 7), ("replicas", 0), ("catch-up", 0), ("die", 3)])
@settings(max_examples=HALF)
@given(script=scripts(*WORDS))
def test_store_must_equal_one_that_is_listed_afresh(script: list[tuple[str, int]]) -> None:
    world = begin([(2, 1), (1, 0)], 2)
    world.checks.clear()
    live = caches()
    store = Store(live, lambda _: None)
    for word, number in script:
        step(world, live, word, number)
        if number % 4 == 0:
            assert_equals_a_list(store, live, world.now)
    assert_equals_a_list(store, live, world.now)


def assert_equals_a_list(store: Store, live: Caches, now: float) -> None:
    listed = caches()
    fresh = Store(listed, lambda _: None)
    # In another order than they came.
    listed.pods.replace("", sorted(live.pods.values(), key=lambda pod: pod.metadata.uid), "1")
    listed.revisions.replace("", list(reversed(list(live.revisions.values()))), "1")
    listed.services.replace("", list(live.services.values()), "1")
    listed.servings.replace("", list(live.servings.values()), "1")
    assert store.view(("default", "a"), now) == fresh.view(("default", "a"), now)
    assert dump(store, now) == dump(fresh, now)


def dump(store: Store, now: float) -> dict[str, Any]:
    text = b"".join(Snapshot(store.snapshot(), now).chunks(None, None))
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.covers("R29", "MS-44")
@settings(max_examples=HALF)
@given(script=scripts(*WORDS))
def test_store_must_hold_nothing_of_what_is_gone(script: list[tuple[str, int]]) -> None:
    world = begin([(2, 1), (1, 0)], 2)
    world.checks.clear()
    live = caches()
    store = Store(live, lambda _: None)
    store.remember(True)
    for word, number in script:
        step(world, live, word, number)
        view = store.view(("default", "a"), world.now)
        if number & 1 and view is not None:
            for pod in list(live.pods.values())[:3]:
                store.intend(("default", "a"), pod, with_group=bool(number & 2))
    for name in list(world.objects["modelservings"]):
        world.drop("modelservings", name)
    for resource in ("pods", "services", "controllerrevisions"):
        for name in list(world.objects[resource]):
            world.drop(resource, name)
    step(world, live, "gap", 0)
    assert store.sizes() == {"servings": 0, "groups": 0, "remembered": 0}


@pytest.mark.covers("R30")
@given(script=scripts(*CALM, *FAULTS, "progress", *CHANGES))
def test_snapshot_must_never_change(script: list[tuple[str, int]]) -> None:
    world = World(serving(role("p", 2, 1), replicas=2))
    world.run()
    snapshot = Snapshot(world.store.snapshot(), world.now)
    before = b"".join(snapshot.chunks(None, None))
    pieces = snapshot.chunks(None, None)
    for word, number in script:
        take(world, word, number)
    assert b"".join(pieces) == before == b"".join(snapshot.chunks(None, None))
