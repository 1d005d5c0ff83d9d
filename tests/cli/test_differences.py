from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api import labels
from isthmus.api.modelserving import ModelServing
from isthmus.api.pods import ServingPod
from isthmus.cli.differences import differences, is_running, view
from isthmus.modelserving.dto import CacheDump, ServingGroupDTO
from tests.support.dumps import group, instance
from tests.support.manifests import model_serving


def serving(name: str = "demo", uid: str = "u1") -> ModelServing:
    raw = model_serving(name)
    raw["metadata"]["uid"] = uid
    return msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing)


def pod(
    role_id: str = "prefill-0",
    index: int = 0,
    *,
    ready: bool = True,
    phase: str = "Running",
    dying: bool = False,
    uid: str | None = "u1",
    revision: str = "759bf7cf75",
    hash: str = "5cc6fc8695",
) -> ServingPod:
    """A pod of group demo-0 of default/demo; `uid` is its owner's."""
    raw: dict[str, Any] = {
        "metadata": {
            "name": f"demo-0-{role_id}-{index}",
            "namespace": "default",
            "labels": {
                labels.NAME: "demo",
                labels.GROUP_NAME: "demo-0",
                labels.ROLE: role_id.rpartition("-")[0],
                labels.ROLE_ID: role_id,
                labels.REVISION: revision,
                labels.ROLE_TEMPLATE_HASH: hash,
            },
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    if uid is not None:
        owner = {"apiVersion": "v1", "kind": "ModelServing", "name": "demo", "uid": uid, "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
    if dying:
        raw["metadata"]["deletionTimestamp"] = "2026-11-30T22:00:00Z"
    return msgspec.json.decode(msgspec.json.encode(raw), type=ServingPod)


DUMP: CacheDump = {"default/demo": {"demo-0": group("demo-0")}}
PODS = [pod("prefill-0"), pod("prefill-1")]


def compare(dump: CacheDump, *pods: ServingPod, uid: str = "u1") -> list[str]:
    return differences(dump, view([serving(uid=uid)], pods))


def test_equal_views_must_have_no_differences() -> None:
    assert compare(DUMP, *PODS) == []
    assert compare({"default/demo": {}}) == []


def test_modelservings_of_one_side_must_be_named() -> None:
    assert differences({"a/b": {}}, view([serving()], [])) == [
        "ModelServing a/b is in the cache, but the API server has no such thing",
        "ModelServing default/demo is in the API, but not in the cache",
    ]


def test_groups_instances_and_pods_of_one_side_must_be_named() -> None:
    assert compare({"default/demo": {}}, *PODS) == [
        "default/demo: group demo-0 is in the API, but not in the cache"
    ]
    assert compare(DUMP) == [
        "default/demo: group demo-0 is in the cache, but the API server has no such thing"
    ]
    prefix = "default/demo: group demo-0: "
    assert compare(DUMP, *PODS, pod("decode-0")) == [
        f"{prefix}instance decode/decode-0 is in the API, but not in the cache",
        f"{prefix}running pod demo-0-decode-0-0 is in the API, but not in the cache",
    ]
    assert compare(DUMP, PODS[0]) == [
        f"{prefix}instance prefill/prefill-1 is in the cache, but the API server has no such thing",
        f"{prefix}running pod demo-0-prefill-1-0 is in the cache, but the API server has no such thing",
    ]


@pytest.mark.parametrize("fields", [{"ready": False}, {"phase": "Pending"}, {"dying": True}])
def test_a_pod_that_does_not_run_must_be_a_difference_where_the_cache_says_so(fields: dict[str, Any]) -> None:
    lines = compare(DUMP, PODS[0], pod("prefill-1", **fields))
    assert lines == [
        "default/demo: group demo-0: instance prefill/prefill-1: "
        "Running in the cache, but not running in the API: demo-0-prefill-1-0",
        "default/demo: group demo-0: running pod demo-0-prefill-1-0 "
        "is in the cache, but the API server has no such thing",
    ]
    roles = {"prefill": {"prefill-0": instance("prefill-0"), "prefill-1": instance("prefill-1", "Creating")}}
    told = ServingGroupDTO("demo-0", ["demo-0-prefill-0-0"], "759bf7cf75", "Creating", roles)
    assert compare({"default/demo": {"demo-0": told}}, PODS[0], pod("prefill-1", **fields)) == []


def test_revision_and_hash_must_be_compared() -> None:
    lines = compare(DUMP, PODS[0], pod("prefill-1", revision="new", hash=""))
    assert lines == [
        "default/demo: group demo-0: instance prefill/prefill-1: "
        "revision 759bf7cf75 in the cache, new in the API",
        "default/demo: group demo-0: instance prefill/prefill-1: "
        "role template hash 5cc6fc8695 in the cache, (none) in the API",
    ]
    assert compare(DUMP, PODS[0], PODS[1], pod("prefill-1", 1, ready=False, revision="new"))[0].endswith(
        "not running in the API: demo-0-prefill-1-1"
    ), "one of several revisions is enough"


@pytest.mark.parametrize("uid", [None, "former"])
def test_pods_of_nobody_or_of_a_former_modelserving_must_not_count(uid: str | None) -> None:
    assert compare({"default/demo": {}}, pod(uid=uid)) == []


def test_hostile_names_must_be_escaped() -> None:
    (line,) = differences({"a/\x1b[2J": {}}, {})
    assert "\x1b" not in line


def test_running_must_mean_what_the_cache_means() -> None:
    assert is_running(pod())
    assert not is_running(pod(ready=False))
    assert not is_running(pod(dying=True))
    assert not is_running(pod(phase="Succeeded"))
