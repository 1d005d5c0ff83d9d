"""DynamoGraphDeployment in either form -> model.Graph: `normalise`.

The planner calls it once per pass. Which form it is, the fields say, not the version in which it was read
(GD-4, GD-6): the API server hands both forms out in both versions. What came past the CRD ends as a problem
with its field, never as an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from isthmus.api.decode import Unreadable
from isthmus.api.dynamo.alpha import service_template
from isthmus.api.dynamo.analysis import TYPES
from isthmus.api.dynamo.graphs import Component, DynamoGraphDeployment, GraphSpec, Quantity, Service
from isthmus.api.dynamo.model import Finding, Graph, GraphComponent, Refusal
from isthmus.api.dynamo.names import component_namespace
from isthmus.api.dynamo.problems import problems
from isthmus.api.dynamo.template import EnvList, Template, misfit, with_claim
from isthmus.api.meta import Raw

MULTINODE: Final = "no_multinode_orchestrator"
NOT_RUN: Final = "unsupported_field"


class _Notes:
    """What is found on the way."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.refusals: list[Refusal] = []
        self.warnings: list[Finding] = []


def normalise(graph: DynamoGraphDeployment) -> Graph:
    """See the module."""
    spec = graph.spec
    if isinstance(spec, Unreadable):
        return Graph(problems=(Finding("spec", spec.reason),))
    notes = _Notes()
    if spec.components and spec.services:
        notes.problems.append(Finding("spec.services", "cannot be set together with spec.components"))
    if spec.components:
        components = tuple(
            _component(f"spec.components[{index}]", each, notes) for index, each in enumerate(spec.components)
        )
    else:
        components = tuple(
            _service(f"spec.services[{name}]", name, each, graph, notes)
            for name, each in sorted(spec.services.items())
        )
    _of_spec(spec, notes)
    notes.problems += problems(graph.metadata, components)
    return Graph(
        components=components,
        env=_env(spec, notes),
        labels=spec.labels,
        annotations=spec.annotations,
        priority_class=spec.priority_class_name,
        problems=tuple(notes.problems),
        refusals=tuple(notes.refusals),
        warnings=tuple(notes.warnings),
    )


def _component(path: str, each: Component, notes: _Notes) -> GraphComponent:
    raw_template = _template(f"{path}.podTemplate", each.pod_template, notes)
    cache = each.compilation_cache
    if cache is not None:
        if cache.pvc_name and cache.mount_path:
            raw_template = with_claim(raw_template, cache.pvc_name, cache.mount_path)
        else:
            notes.problems.append(Finding(f"{path}.compilationCache", "needs pvcName and mountPath"))
    if each.type and each.type not in TYPES:
        notes.problems.append(Finding(f"{path}.type", f"must be one of {', '.join(TYPES)}; is {each.type}"))
    return GraphComponent(
        name=each.name,
        path=path,
        type=each.type if each.type in TYPES else "",
        replicas=each.replicas,
        raw_template=raw_template,
        global_dynamo_namespace=each.global_dynamo_namespace,
        shared_memory=_quantity(each.shared_memory_size),
        frontend_sidecar=each.frontend_sidecar,
        runs=_runs(
            path,
            {
                "multinode": each.multinode,
                "eppConfig": each.epp_config,
                "modelRef": each.model_ref,
                "scalingAdapter": each.scaling_adapter,
            },
            notes,
        ),
    )


def _service(
    path: str, name: str, each: Service, graph: DynamoGraphDeployment, notes: _Notes
) -> GraphComponent:
    kind = each.component_type
    if kind == "worker" and each.sub_component_type in ("prefill", "decode"):
        kind = each.sub_component_type
    meta = graph.metadata
    namespace = component_namespace(meta.namespace, meta.name, shared=each.global_dynamo_namespace)
    if each.dynamo_namespace not in ("", namespace):
        text = f"is {each.dynamo_namespace} and has no effect: the Dynamo namespace is {namespace}"
        notes.warnings.append(Finding(f"{path}.dynamoNamespace", text))
    if _set(each.ingress):
        notes.warnings.append(Finding(f"{path}.ingress", "has no effect: no Ingress is made"))
    scaled = msgspec.Raw(b"true") if each.scaling_adapter.enabled else None
    return GraphComponent(
        name=name,
        path=path,
        type=kind if kind in TYPES else "",
        replicas=each.replicas,
        raw_template=_of_service(path, each, notes),
        global_dynamo_namespace=each.global_dynamo_namespace,
        shared_memory=_shared_memory(each),
        runs=_runs(
            path,
            {
                "multinode": each.multinode,
                "eppConfig": each.epp_config,
                "modelRef": each.model_ref,
                "scalingAdapter": scaled,
            },
            notes,
        ),
    )


def _shared_memory(each: Service) -> str:
    memory = each.shared_memory
    if memory is None:
        return _quantity(None)
    return "0" if memory.disabled else _quantity(memory.size)


def _of_service(path: str, each: Service, notes: _Notes) -> Raw:
    for index, mount in enumerate(each.volume_mounts):
        if not mount.name or not mount.mount_point:
            notes.problems.append(Finding(f"{path}.volumeMounts[{index}]", "needs name and mountPoint"))
            return {}
    try:
        raw_template = service_template(each)
    except msgspec.MsgspecError as error:
        notes.problems.append(Finding(path, str(error)))
        return {}
    return _checked(f"{path}.extraPodSpec", raw_template, notes)


def _template(path: str, raw_template: msgspec.Raw | None, notes: _Notes) -> Raw:
    try:
        found = msgspec.json.decode(raw_template or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        notes.problems.append(Finding(path, str(error)))
        return {}
    return _checked(path, found, notes)


def _checked(path: str, found: Any, notes: _Notes) -> Raw:
    if text := misfit(found, Template):
        notes.problems.append(Finding(path, text))
        return {}
    template: Raw = found
    return template


def _env(spec: GraphSpec, notes: _Notes) -> tuple[Raw, ...]:
    """spec.env, or spec.envs in the older version."""
    for field, raw_env in (("env", spec.env), ("envs", spec.envs)):
        if raw_env is None:
            continue
        found = msgspec.json.decode(raw_env)
        if text := misfit(found, EnvList):
            notes.problems.append(Finding(f"spec.{field}", text))
            return ()
        return tuple(found)
    return ()


def _of_spec(spec: GraphSpec, notes: _Notes) -> None:
    if _set(spec.restart):
        text = "restarts on demand are not run; change an annotation of the pod template instead"
        notes.refusals.append(Refusal("spec.restart", NOT_RUN, text))
    for index, claim in enumerate(spec.pvcs):
        if claim.create:
            text = f"claims are not created here; create {claim.name} and mount it"
            notes.refusals.append(Refusal(f"spec.pvcs[{index}].create", NOT_RUN, text))


_WHY: Final[Mapping[str, tuple[str, str, bool]]] = {
    "multinode": (MULTINODE, "components of several nodes need an orchestrator, and none is supported", True),
    "eppConfig": (NOT_RUN, "configuration of an endpoint picker is not handed to it here", True),
    "modelRef": (NOT_RUN, "no Service of a base model is made", False),
    "scalingAdapter": (NOT_RUN, "no scaling adapter is run; replicas are those of the spec", False),
}
"""For each field: the reason in status, why for people, and whether the component cannot run at all with it
(GD-40)."""


def _runs(path: str, fields: Mapping[str, msgspec.Raw | None], notes: _Notes) -> bool:
    stops = False
    for field, value in fields.items():
        if _set(value):
            reason, text, stopping = _WHY[field]
            notes.refusals.append(Refusal(f"{path}.{field}", reason, text))
            stops = stops or stopping
    return not stops


def _set(value: msgspec.Raw | None) -> bool:
    return value is not None


def _quantity(value: Quantity | None) -> str:
    return "8Gi" if value is None else str(value)


def findings(graph: Graph) -> Iterator[Finding | Refusal]:
    """Everything that keeps a graph from being run as it is written, worst first."""
    yield from graph.problems
    yield from graph.refusals
