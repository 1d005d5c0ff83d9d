"""What a relay sees, for tests: slices of a graph, entry pods of a ModelServing, frontends that answered.

Every function builds one object with sensible defaults; arguments change what a test is about.
"""

from __future__ import annotations

from typing import Any

import msgspec

from isthmus.api.endpointslices import EndpointSlice
from isthmus.api.entrypods import EntryPod
from isthmus.api.meta import Raw
from isthmus.relay.options import RelayOptions
from isthmus.relay.plan.model import GRAPH, Card, Crew, Door, Heard, Roster, Sample, Selection, Settings

NAMESPACE = "serving"
DYNAMO = "serving-east"


def selection(**changes: Any) -> Selection:
    """The graph `east`."""
    return Selection(**({"kind": GRAPH, "namespace": NAMESPACE, "name": "east"} | changes))


def settings(**changes: Any) -> Settings:
    """What its relay was told."""
    return Settings(**({"namespace": DYNAMO, "cluster_id": "one"} | changes))


def options(**changes: Any) -> RelayOptions:
    """A relay of cluster `one` that listens on a port for probes."""
    fields: dict[str, Any] = {
        "cluster_id": "one",
        "selection": selection(),
        "system": (("127.0.0.1",), 8081),
        "advertise": "http://10.0.0.7:5561",
        "instance": "pod-uid",
    }
    return RelayOptions(**(fields | changes))


def endpoint(address: str, *, ready: bool = True, pod: str = "", zone: str = "", **more: Any) -> Raw:
    """One endpoint of a slice."""
    raw: Raw = {"addresses": [address], "conditions": {"ready": ready}, "zone": zone} | more
    return raw | ({"targetRef": {"kind": "Pod", "name": pod}} if pod else {})


def slice_of(
    component: str, kind: str, *endpoints: Raw, namespace: str = DYNAMO, **parts: Any
) -> EndpointSlice:
    """A slice of a component's Service, as the API server's controller makes it."""
    port = {"name": "http", "port": 8000} if kind == "frontend" else {"name": "system", "port": 9090}
    labels = {
        "kubernetes.io/service-name": f"east-{component.lower()}",
        "nvidia.com/dynamo-component": component,
        "nvidia.com/dynamo-component-type": kind,
        "nvidia.com/dynamo-namespace": namespace,
    }
    raw = {
        "metadata": {
            "name": parts.pop("name", f"east-{component.lower()}-x1"),
            "namespace": NAMESPACE,
            "labels": {key: value for key, value in (labels | parts.pop("labels", {})).items() if value},
        },
        "addressType": parts.pop("family", "IPv4"),
        "endpoints": list(endpoints),
        "ports": parts.pop("ports", [port]),
    }
    return msgspec.json.decode(msgspec.json.encode(raw | parts), type=EndpointSlice)


def entry(name: str, role: str, address: str, *, ready: bool = True, **parts: Any) -> EntryPod:
    """The entry pod of a role replica of `east`."""
    raw = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "modelserving.volcano.sh/name": "east",
                "modelserving.volcano.sh/role": role,
                "modelserving.volcano.sh/entry": "true",
            },
            **parts.pop("metadata", {}),
        },
        "spec": {"containers": [{"ports": parts.pop("ports", [])}]},
        "status": {
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=EntryPod)


def door(number: int = 1, **changes: Any) -> Door:
    """A frontend."""
    return Door(**({"url": f"http://10.0.0.{number}:8000", "service": "east-frontend"} | changes))


def crew(role: str = "aggregated", *, ready: int = 1, total: int | None = None, component: str = "") -> Crew:
    """Workers of one role."""
    return Crew(
        namespace=DYNAMO,
        component=component or role,
        role=role,
        ready=ready,
        total=max(ready, total or 1),
    )


def roster(*doors: Door, crews: tuple[Crew, ...] = (), **changes: Any) -> Roster:
    """The pool; with aggregated workers where none are named."""
    return Roster(
        **({"doors": doors, "crews": tuple(sorted(crews or (crew(),))), "namespaces": (DYNAMO,)} | changes)
    )


def heard(*models: str, load: dict[str, Sample] | None = None, load_at: float = 0.0, **changes: Any) -> Heard:
    """A frontend that lists these models."""
    cards = tuple(sorted(Card(model) for model in models))
    fields: dict[str, Any] = {"cards": cards, "asked": True, "load": load, "load_at": load_at}
    return Heard(**(fields | changes))
