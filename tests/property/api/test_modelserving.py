"""Decoding must survive whatever JSON an old CRD or a direct write let into etcd."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.decode import Unreadable
from isthmus.api.modelserving import ModelServing, Spec, Status
from isthmus.api.validation import problems
from tests.support.manifests import model_serving, pod_template, role

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def full() -> dict[str, Any]:
    """A manifest in which every field of the spec is set."""
    return model_serving(
        roles=[
            role(replicas=1, workerReplicas=1, workerTemplate=pod_template(), maxUnavailable=1, partition=0)
        ],
        template={
            "restartGracePeriodSeconds": 1,
            "gangPolicy": {"minRoleReplicas": {"prefill": 1}},
            "networkTopology": {"groupPolicy": {"mode": "hard"}},
        },
        replicas=1,
        plugins=[{"name": "demo-pod-tweaks", "config": {}, "scope": {"roles": [], "target": "All"}}],
        rolloutStrategy={"type": "RoleRollingUpdate"},
        recoveryPolicy="None",
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [path] + [p for key, item in value.items() for p in places(item, (*path, key))]
    if isinstance(value, list):
        return [path] + [p for key, item in enumerate(value) for p in places(item, (*path, key))]
    return [path]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    first, *rest = path
    if isinstance(value, dict):
        return {**value, first: put(value[first], tuple(rest), new)}
    return [put(item, tuple(rest), new) if index == first else item for index, item in enumerate(value)]


SPEC_PLACES = places(full()["spec"])


@given(place=st.sampled_from(SPEC_PLACES), junk=anything)
def test_junk_anywhere_in_the_spec_must_never_raise(place: tuple[Any, ...], junk: Any) -> None:
    manifest = full() | {"spec": put(full()["spec"], place, junk)}
    serving = msgspec.json.decode(json.dumps(manifest).encode(), type=ModelServing)
    assert serving.metadata.name == "sample"
    if isinstance(serving.spec, Spec):
        assert isinstance(problems(serving.metadata.name, serving.spec), tuple)
    else:
        assert isinstance(serving.spec, Unreadable)
        assert serving.spec.reason


@given(junk=anything)
def test_junk_in_the_status_must_never_raise(junk: Any) -> None:
    manifest = full() | {"status": junk}
    serving = msgspec.json.decode(json.dumps(manifest).encode(), type=ModelServing)
    assert isinstance(serving.spec, Spec)
    assert isinstance(serving.status, Status)
