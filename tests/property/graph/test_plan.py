"""Whatever graphs people write, one after the other: plans end, touch only what is the graph's, and never
raise (INV-16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from isthmus.api.dynamo.analysis import TYPES
from isthmus.api.dynamo.children import DEPLOYMENTS, SERVICES
from isthmus.api.meta import Raw
from isthmus.graph.plan.model import ChildName, CreateChild, GraphSettings, Observed
from isthmus.graph.plan.reconcile import plan, sort_children
from isthmus.graph.plan.status import status
from tests.support.graphs import BACKEND, MODE, act, alpha, beta, child, component, read, service

NAMES = st.sampled_from(["Frontend", "Engine", "engine", "Decode", "a-b"])
ENV = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ABC"), "value": st.sampled_from(["", "x", "$(B)", "$(C)/y"])}
    ),
    max_size=4,
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 3),
        "globalDynamoNamespace": st.booleans(),
        "multinode": st.just({"nodeCount": 2}),
        "main": st.fixed_dictionaries({}, optional={"env": ENV, "args": st.just(["run"])}),
        "pod": st.fixed_dictionaries({}, optional={"nodeSelector": st.just({"disk": "ssd"})}),
    },
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        BACKEND: st.sampled_from(["etcd", "kubernetes", "x"]),
        MODE: st.sampled_from(["pod", "container"]),
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**33) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@st.composite
def manifests(draw: st.DrawFn) -> Raw:
    """A graph in either form."""
    names = draw(st.lists(NAMES, max_size=4, unique_by=str.lower))
    kinds = [draw(st.sampled_from(["", *TYPES[:5]])) for _ in names]
    fields: list[dict[str, Any]] = [dict(draw(TEMPLATES)) for _ in names]
    more: dict[str, Any] = {"annotations": draw(ANNOTATIONS)}
    rows = list(zip(names, kinds, fields, strict=True))
    if draw(st.booleans()):
        made: dict[str, Any] = {}
        for name, kind, each in rows:
            made[name] = service(kind, **each)
        return alpha(services=made, envs=draw(ENV), **more) if made else alpha(**more)
    components = [component(name, kind, **each) for name, kind, each in rows]
    return beta("chat", *components, env=draw(ENV), **more)


@pytest.mark.covers("G-2", "G-3", "GD-38", "GD-39")
@given(st.lists(manifests(), min_size=1, max_size=4), st.lists(st.booleans(), min_size=40, max_size=40))
def test_changes_must_end_with_nothing_to_do_even_half_applied(history: list[Raw], done: list[bool]) -> None:
    seen = Observed(graph=read(history[0]))
    chances = iter(done)
    for generation, manifest in enumerate(history, start=1):
        seen = replace(seen, graph=read(manifest, generation=generation))
        planned = plan(seen, GraphSettings())
        part = tuple(action for action in planned.actions if next(chances, True))
        seen = act(seen, replace(planned, actions=part))
    seen = act(seen, plan(seen, GraphSettings()))
    planned = plan(seen, GraphSettings())
    assert planned.actions == ()
    first = status(seen, planned, (), 1.0)
    stored = replace(seen, graph=replace(seen.graph, status=first))
    assert status(stored, plan(stored, GraphSettings()), (), 2.0) == first


@pytest.mark.covers("GD-17", "G-4", "GD-40")
@given(manifests(), manifests(), st.sets(st.sampled_from(["frontend", "engine", "decode", "a-b"])))
def test_plan_must_touch_only_what_is_the_graphs(before: Raw, after: Raw, taken: set[str]) -> None:
    seen = act(Observed(graph=read(before)), plan(Observed(graph=read(before)), GraphSettings()))
    foreign = {
        ChildName(resource.kind, f"chat-{name}"): child(
            {"kind": resource.kind, "metadata": {"name": f"chat-{name}", "namespace": "serving"}}
        )
        for resource in (DEPLOYMENTS, SERVICES)
        for name in taken
    }
    _, strangers = sort_children(foreign.items(), "graph-uid")
    ours = {name: each for name, each in seen.children.items() if name not in foreign}
    seen = replace(seen, graph=read(after), children=ours, strangers=strangers)
    planned = plan(seen, GraphSettings())
    for action in planned.actions:
        assert action.name not in strangers
        assert isinstance(action, CreateChild) != (action.name in ours)
    kept = {each.name.lower() for each in planned.model.components if not each.runs}
    assert not [action for action in planned.actions if action.name.name.removeprefix("chat-") in kept]


@pytest.mark.covers("G-5")
@given(st.dictionaries(st.sampled_from(["components", "services", "env", "restart", "pvcs", "labels"]), JSON))
def test_any_spec_must_be_read_without_a_failure(spec: Raw) -> None:
    seen = Observed(graph=read(beta() | {"spec": spec}))
    planned = plan(seen, GraphSettings())
    assert status(seen, planned, (), 1.0).state in ("pending", "successful", "failed")
    if planned.model.problems:
        assert planned.actions == ()


@given(JSON, JSON, JSON)
def test_any_template_must_be_read_without_a_failure(template: Any, pod: Any, container: Any) -> None:
    of_beta = beta(
        "chat", {"name": "E", "podTemplate": template}, component("F", pod={"containers": [container]})
    )
    of_alpha = alpha(
        services={"E": {"extraPodSpec": pod, "envs": container}, "F": service(main={"env": pod})}
    )
    for manifest in (of_beta, of_alpha):
        seen = Observed(graph=read(manifest))
        planned = plan(seen, GraphSettings())
        assert planned.actions == () or not planned.model.problems
