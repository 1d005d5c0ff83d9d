"""What the caches say about a relay, and which relays a change wakes (section 12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.meta import ObjectMeta
from isthmus.api.pods import ServingLabels, ServingMeta, ServingService
from isthmus.api.poolrelay import Target
from isthmus.poolrelay.plan.model import Frontend, PropertyState
from tests.support.relays import cluster_property, export, graph, owner, pool, relay, settings, stored_child
from tests.support.relaystore import Cluster

EAST, WEST = ("serving", "east"), ("serving", "west")
SERVING = {"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "chat"}


def two_relays() -> Cluster:
    """Relays and graphs `east` and `west`."""
    found = Cluster()
    for name in ("east", "west"):
        found.put(found.caches.relays, relay(name, uid=f"{name}-relay"))
        found.graphs.put(pool(name))
    return found


def newer(obj: Any, version: str, **changes: Any) -> Any:
    """A later state of the same object."""
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=version, **changes)
    )


def serving_service(
    name: str, *, uid: str = "chat-uid", serving: str = "chat", version: str = "1"
) -> ServingService:
    """A headless Service of a ModelServing's role replica."""
    labels = ServingLabels(name=serving, group_name=f"{serving}-0", role_id="decode-0")
    meta = ServingMeta(
        name=name,
        namespace="serving",
        uid=f"{name}-uid",
        resource_version=version,
        labels=labels,
        owner_references=(owner(serving, uid, kind="ModelServing"),),
    )
    return ServingService(metadata=meta)


def chat(version: str = "1", **changes: Any) -> Target:
    """A ModelServing."""
    fields: dict[str, Any] = {"name": "chat", "namespace": "serving", "uid": "chat-uid", "generation": 1}
    return Target(metadata=ObjectMeta(resource_version=version, **(fields | changes)))


@pytest.mark.covers("PR-98", "T-135")
def test_graph_must_wake_the_relay_of_its_name_and_namespace_alone() -> None:
    cluster = two_relays()
    assert cluster.wakes(lambda: cluster.graphs.put(pool("east", "Api"))) == {EAST}
    assert cluster.wakes(lambda: cluster.graphs.drop(EAST)) == {EAST}
    assert cluster.wakes(lambda: cluster.graphs.put(graph("east", [], namespace="other"))) == set()


@pytest.mark.covers("PR-99", "PR-91")
def test_relay_must_wake_itself() -> None:
    cluster = two_relays()
    assert cluster.wakes(lambda: cluster.put(cluster.caches.relays, newer(relay(uid="east-relay"), "8"))) == {
        EAST
    }


@pytest.mark.covers("PR-99")
def test_child_must_wake_the_relay_of_its_label() -> None:
    cluster = two_relays()
    child = stored_child({"metadata": {"labels": {"nvidia.com/dynamo-pool-relay": "west"}}})
    assert cluster.wakes(lambda: cluster.put(cluster.caches.children["Deployment"], child)) == {WEST}
    assert cluster.wakes(lambda: cluster.drop(cluster.caches.children["Deployment"], child)) == {WEST}


@pytest.mark.covers("PR-94", "PR-96", "T-128", "T-130")
def test_export_must_wake_whoever_wants_its_name() -> None:
    cluster = two_relays()
    assert cluster.wakes(lambda: cluster.put(cluster.exports, export("east-frontend"))) == {EAST}
    assert cluster.wakes(lambda: cluster.put(cluster.exports, export("else"))) == set()
    assert cluster.wakes(lambda: cluster.drop(cluster.exports, export("east-frontend"))) == {EAST}
    assert cluster.mistakes == 0


@pytest.mark.covers("PR-96", "PR-47", "T-51")
def test_export_of_another_namespace_must_wake_nobody() -> None:
    cluster = two_relays()
    elsewhere = export("east-frontend", namespace="other")
    assert cluster.wakes(lambda: cluster.put(cluster.exports, elsewhere)) == set()


@pytest.mark.covers("PR-96")
def test_relay_without_a_graph_must_want_its_own_export_and_impossible_ones_too() -> None:
    cluster = Cluster()
    cluster.put(cluster.caches.relays, relay())
    assert cluster.store.wanting(("serving", "east-pool-relay")) == (EAST,)
    long = "e" * 70
    cluster.graphs.put(graph("east", [Frontend("F", long)]))
    assert cluster.store.wanting(("serving", long)) == (EAST,)
    assert cluster.store.wanting(("other", long)) == ()


@pytest.mark.covers("PR-96")
def test_names_that_are_no_longer_wanted_must_be_forgotten() -> None:
    cluster = two_relays()
    cluster.graphs.put(pool("east", "Api"))
    assert cluster.store.wanting(("serving", "east-frontend")) == ()
    assert cluster.store.wanting(("serving", "east-api")) == (EAST,)
    cluster.drop(cluster.caches.relays, relay(uid="east-relay"))
    cluster.drop(cluster.caches.relays, relay("west", uid="west-relay"))
    assert cluster.store._names == {}
    assert cluster.store._wanting == {}


@pytest.mark.covers("T-131")
def test_name_that_two_relays_want_must_wake_both() -> None:
    cluster = Cluster()
    cluster.put(cluster.caches.relays, relay("a", uid="a-relay"), relay("a-b", uid="a-b-relay"))
    cluster.graphs.put(graph("a", [Frontend("b-frontend", "a-b-frontend")]))
    cluster.graphs.put(graph("a-b", [Frontend("frontend", "a-b-frontend")]))
    both = {("serving", "a"), ("serving", "a-b")}
    assert cluster.wakes(lambda: cluster.put(cluster.exports, export("a-b-frontend"))) == both
    cluster.drop(cluster.caches.relays, relay("a", uid="a-relay"))
    assert cluster.wakes(lambda: cluster.drop(cluster.exports, export("a-b-frontend"))) == {
        ("serving", "a-b")
    }


@pytest.mark.covers("PR-90", "PR-92", "PR-97", "T-46")
def test_clusters_id_must_wake_every_relay_when_it_comes_changes_or_goes() -> None:
    cluster = two_relays()
    cache = cluster.properties
    first = cluster_property("one", version="5")
    assert cluster.wakes(lambda: cluster.put(cache, first)) == {EAST, WEST}
    assert cluster.wakes(lambda: cluster.put(cache, cluster_property("one", version="6"))) == set()
    second = cluster_property("two", version="7")
    assert cluster.wakes(lambda: cluster.put(cache, second)) == {EAST, WEST}
    assert cluster.wakes(lambda: cluster.drop(cache, second)) == {EAST, WEST}
    assert cluster.wakes(lambda: cluster.put(cache, cluster_property("two", version="9"))) == {EAST, WEST}
    other = cluster_property("x", name="clusterset.k8s.io", version="10")
    assert cluster.wakes(lambda: cluster.put(cache, other)) == set()
    assert cluster.wakes(lambda: cluster.api.changed[0]()) == {EAST, WEST}


@pytest.mark.covers("PR-14", "PR-86", "PR-87", "PR-88", "T-44")
def test_clusters_id_must_be_unwatched_unknown_absent_or_there() -> None:
    assert Cluster(settings("karmada")).store.cluster() is PropertyState.UNWATCHED
    assert Cluster(settings("")).store.cluster() is PropertyState.UNWATCHED
    cluster = Cluster()
    assert cluster.store.cluster() is PropertyState.ABSENT
    cluster.api.known = False
    assert cluster.store.cluster() is PropertyState.UNKNOWN
    cluster.put(cluster.properties, cluster_property("one"))
    assert cluster.store.cluster() == cluster_property("one")


@pytest.mark.covers("PR-47", "PR-70", "PR-72", "T-10")
def test_relay_must_see_its_own_exports_and_those_of_its_names_in_its_namespace() -> None:
    cluster = two_relays()
    mine = relay(uid="east-relay")
    ours, old = export("east-frontend", owner(uid="east-relay")), export("east-old", owner(uid="east-relay"))
    elsewhere = export("east-pool-relay", owner(uid="east-relay"), namespace="other")
    foreign = export("east-pool-relay")
    cluster.put(cluster.exports, ours, old, elsewhere, export("west-frontend"))
    assert set(cluster.store.observe(mine).exports) == {"east-frontend", "east-old"}
    cluster.put(cluster.exports, foreign)
    assert cluster.store.observe(mine).exports["east-pool-relay"] == foreign


@pytest.mark.covers("PR-20")
def test_relay_must_see_its_children_and_strangers_apart() -> None:
    cluster = two_relays()
    ours = stored_child({"metadata": {"ownerReferences": [_raw_owner("east-relay")]}})
    theirs = stored_child({"metadata": {"ownerReferences": [_raw_owner("x")]}})
    cluster.put(cluster.caches.children["Service"], ours)
    cluster.put(cluster.caches.children["Role"], theirs)
    seen = cluster.store.observe(relay(uid="east-relay"))
    assert list(seen.children) == ["Service"]
    assert [each.kind for each in seen.strangers] == ["Role"]


@pytest.mark.covers("PR-101", "T-136")
def test_namespace_of_another_operator_must_be_passed_over() -> None:
    cluster = Cluster(skips=lambda namespace: namespace == "serving")
    assert cluster.wakes(lambda: cluster.put(cluster.caches.relays, relay())) == set()
    assert cluster.wakes(lambda: cluster.graphs.put(pool())) == set()
    assert cluster.wakes(lambda: cluster.put(cluster.exports, export("east-frontend", owner()))) == set()
    assert cluster.wakes(cluster.store.wake_all) == set()
    assert cluster.store.keys() == []
    assert cluster.store.relay(EAST) is None


# ModelServings as pools


def test_relay_of_a_modelserving_must_follow_its_services() -> None:
    cluster = Cluster()
    of = relay(targetRef=SERVING)
    cluster.put(cluster.caches.relays, of)
    assert cluster.store.observe(of).pool is None
    assert cluster.wakes(lambda: cluster.put(cluster.caches.servings, chat())) == {EAST}
    entry = serving_service("chat-0-decode-0-0")
    assert cluster.wakes(lambda: cluster.put(cluster.caches.serving_services, entry)) == {EAST}
    stranger = serving_service("chat-9-decode-0-0", uid="earlier")
    cluster.put(cluster.caches.serving_services, stranger)
    found = cluster.store.observe(of).pool
    assert found is not None
    assert (found.kind, found.name, found.uid) == ("ModelServing", "chat", "chat-uid")
    assert found.frontends == (Frontend("chat-0/decode-0", "chat-0-decode-0-0"),)
    assert cluster.store.wanting(("serving", "chat-0-decode-0-0")) == (EAST,)
    dying = newer(entry, "2", deletion_timestamp="2026-09-21T14:13:20Z")
    assert cluster.wakes(lambda: cluster.put(cluster.caches.serving_services, dying)) == {EAST}
    assert cluster.store.observe(of).pool.frontends == ()  # type: ignore[union-attr]
    assert cluster.wakes(lambda: cluster.drop(cluster.caches.serving_services, dying)) == {EAST}
    assert cluster.store.wanting(("serving", "chat-0-decode-0-0")) == ()


@pytest.mark.covers("PR-77")
def test_status_of_a_modelserving_must_wake_nobody() -> None:
    cluster = Cluster()
    cluster.put(cluster.caches.relays, relay(targetRef=SERVING))
    cluster.put(cluster.caches.servings, chat())
    assert cluster.wakes(lambda: cluster.put(cluster.caches.servings, chat("2"))) == set()
    assert cluster.wakes(lambda: cluster.put(cluster.caches.servings, chat("3", generation=2))) == {EAST}
    dying = {"generation": 2, "deletion_timestamp": "2026-09-21T14:13:20Z"}
    assert cluster.wakes(lambda: cluster.put(cluster.caches.servings, chat("4", **dying))) == {EAST}
    assert cluster.store.observe(relay(targetRef=SERVING)).pool.terminating  # type: ignore[union-attr]
    assert cluster.wakes(lambda: cluster.drop(cluster.caches.servings, chat("4", **dying))) == {EAST}
    assert cluster.mistakes == 0


def _raw_owner(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "name": "east",
        "uid": uid,
        "controller": True,
    }
