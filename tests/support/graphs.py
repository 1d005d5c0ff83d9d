"""Graphs for tests: manifests in both versions, decoded objects, and a world for the planner.

`beta` and `alpha` are manifests as a person writes them; `read` is what the operator gets of one. `act` does
what a plan says to the objects that were seen, as an API server would, so that a test can plan again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from isthmus.api.dynamo.children import DEPLOYMENTS, ChildStatus, GraphChild
from isthmus.api.dynamo.graphs import GRAPHS, DynamoGraphDeployment
from isthmus.api.meta import Raw
from isthmus.graph.plan.children import is_ours
from isthmus.graph.plan.model import (
    ChildName,
    CreateChild,
    DeleteChild,
    GraphSettings,
    Observed,
    Plan,
    RepairChild,
)
from isthmus.graph.plan.reconcile import plan

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "graph"
BETA, ALPHA = GRAPHS
NAMESPACE: Final = "serving"
UID: Final = "graph-uid"
BACKEND: Final = "nvidia.com/dynamo-discovery-backend"
MODE: Final = "nvidia.com/dynamo-kube-discovery-mode"


def component(name: str, type: str = "", image: str = "x:1", **fields: Any) -> Raw:
    """One component; `main` and `pod` are fields of its main container and its pod's spec."""
    main = {"name": "main", "image": image, **fields.pop("main", {})}
    pod = {"containers": [main, *fields.pop("sidecars", [])], **fields.pop("pod", {})}
    template = {"spec": pod, **fields.pop("template", {})}
    return {"name": name, **({"type": type} if type else {}), "podTemplate": template, **fields}


def beta(name: str = "chat", *components: Raw, annotations: Raw | None = None, **spec: Any) -> Raw:
    """A v1beta1 graph; of a frontend and a worker where no components are given."""
    chosen = list(components) or [component("Frontend", "frontend"), component("Engine", "worker")]
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {
        "apiVersion": BETA.api_version,
        "kind": BETA.kind,
        "metadata": metadata,
        "spec": {"components": chosen, **spec},
    }


def service(type: str = "", image: str = "x:1", **fields: Any) -> Raw:
    """One service of v1alpha1; `main` and `pod` are fields of its main container and its pod's spec."""
    pod = {"mainContainer": {"image": image, **fields.pop("main", {})}, **fields.pop("pod", {})}
    return {**({"componentType": type} if type else {}), "extraPodSpec": pod, **fields}


def alpha(
    name: str = "chat", annotations: Raw | None = None, services: Raw | None = None, **spec: Any
) -> Raw:
    """A v1alpha1 graph; of a frontend and a worker where no services are given."""
    chosen = services or {"Frontend": service("frontend"), "Engine": service("worker")}
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {
        "apiVersion": ALPHA.api_version,
        "kind": ALPHA.kind,
        "metadata": metadata,
        "spec": {"services": chosen, **spec},
    }


def example(name: str) -> Raw:
    """A manifest of examples/graph."""
    found: Raw = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text("utf-8"))
    return found


def read(manifest: Raw, namespace: str = NAMESPACE, **metadata: Any) -> DynamoGraphDeployment:
    """What the operator gets of a manifest that was stored."""
    stored = {"namespace": namespace, "uid": UID, "generation": 1, "resourceVersion": "7"}
    raw_graph = manifest | {"metadata": {**manifest["metadata"], **stored, **metadata}}
    return msgspec.json.decode(msgspec.json.encode(raw_graph), type=DynamoGraphDeployment)


def child(body: Raw, **metadata: Any) -> GraphChild:
    """What the operator gets of an object that was made of `body`."""
    stored = {"uid": f"uid-of-{body['kind']}-{body['metadata']['name']}", "resourceVersion": "10"}
    raw_child = body | {"metadata": {**body["metadata"], **stored, "generation": 1, **metadata}}
    return msgspec.json.decode(msgspec.json.encode(raw_child), type=GraphChild)


def act(seen: Observed, planned: Plan) -> Observed:
    """The world after a plan was carried out."""
    children = dict(seen.children)
    for action in planned.actions:
        match action:
            case CreateChild(_, body):
                children[action.name] = child(body)
            case RepairChild(_, old, body):
                merged = _merge(msgspec.to_builtins(old, builtin_types=(msgspec.Raw,)), body)
                children[action.name] = child(_plain(old, action.name, merged), resourceVersion="11")
            case DeleteChild():
                del children[action.name]
    return replace(seen, children=children)


def _plain(old: GraphChild, name: ChildName, merged: Raw) -> Raw:
    parts = {
        part: merged[part] for part in ("spec", "rules", "subjects", "status") if merged.get(part) is not None
    }
    return {"kind": name.kind, "metadata": merged["metadata"], **parts}


def _merge(live: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if isinstance(live, msgspec.Raw):
        live = msgspec.json.decode(live)
    if not isinstance(patch, dict):
        return patch
    found = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merge(found.get(key), value)
    return found


def look(manifest: Raw, settings: GraphSettings | None = None, **metadata: Any) -> Plan:
    """The plan for a graph of which nothing has been made."""
    return plan(Observed(graph=read(manifest, **metadata)), settings or GraphSettings())


def made(manifest: Raw, settings: GraphSettings | None = None, **metadata: Any) -> Observed:
    """The world with all that a graph wants, for which a second plan must have nothing to do."""
    seen = Observed(graph=read(manifest, **metadata))
    after = act(seen, plan(seen, settings or GraphSettings()))
    assert plan(after, settings or GraphSettings()).actions == ()
    return after


def then(seen: Observed, manifest: Raw, settings: GraphSettings | None = None) -> Plan:
    """The plan for a graph that was changed to `manifest`."""
    changed = replace(seen, graph=read(manifest, generation=2))
    return plan(changed, settings or GraphSettings())


def bodies(planned: Plan) -> dict[str, Raw]:
    """What is made, by `Kind name`."""
    return {str(action.name): action.body for action in planned.actions if isinstance(action, CreateChild)}


def steps(planned: Plan) -> list[str]:
    """Its actions in short, as `Create Service chat-engine`."""
    return [f"{type(each).__name__.removesuffix('Child')} {each.name}" for each in planned.actions]


def pod(planned: Plan, deployment: str) -> Raw:
    """The pod template of a Deployment that is made."""
    template: Raw = bodies(planned)[f"Deployment {deployment}"]["spec"]["template"]
    return template


def main(planned: Plan, deployment: str) -> Raw:
    """The main container of it."""
    return next(each for each in pod(planned, deployment)["spec"]["containers"] if each["name"] == "main")


def env(planned: Plan, deployment: str) -> dict[str, Any]:
    """The environment of it, by name."""
    return {each["name"]: each.get("value") for each in main(planned, deployment)["env"]}


def running(seen: Observed, **unlike: ChildStatus) -> Observed:
    """The world with every Deployment as its spec wants it; `unlike` are those that are not, by name with
    underscores."""
    children = {}
    for name, each in seen.children.items():
        if name.kind == DEPLOYMENTS.kind:
            assert each.spec is not None
            count = msgspec.json.decode(each.spec)["replicas"]
            each = replace(each, status=unlike.get(name.name.replace("-", "_"), counts(count)))
        children[name] = each
    return replace(seen, children=children)


def counts(replicas: int, /, **unlike: int) -> ChildStatus:
    """The status of a Deployment of which so many pods run."""
    every = dict.fromkeys(("replicas", "updated_replicas", "ready_replicas", "available_replicas"), replicas)
    return ChildStatus(**{"observed_generation": 1, **every, **unlike})


def owned(seen: Observed) -> bool:
    """Whether all that there is belongs to the graph."""
    return all(is_ours(each, UID) for each in seen.children.values())
