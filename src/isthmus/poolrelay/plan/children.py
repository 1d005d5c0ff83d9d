"""What a relay is made of: ServiceAccount, Role, RoleBinding, Service, Deployment, and what has drifted.

`render` makes all five from the relay and its pool (PR-19 to PR-21); `actions` compares them with what is
there. A child is right when it carries the hash of what was rendered and still has all of it; what the API
server or others add is theirs. A repair is a merge patch of what was rendered, in which lists replace lists,
so that nothing of an earlier rendering stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus.api.drift import covers
from isthmus.api.meta import Raw, Resource
from isthmus.api.poolrelay import (
    HASH_ANNOTATION,
    RELAY_CHILDREN,
    RELAY_DEPLOYMENTS,
    RELAY_LABEL,
    RELAY_ROLE_BINDINGS,
    RELAY_ROLES,
    RELAY_SERVICE_ACCOUNTS,
    RELAY_SERVICES,
    DynamoPoolRelay,
    RelayChild,
    RelaySpec,
    pool_relay_name,
)
from isthmus.poolrelay.plan.model import (
    ChildAction,
    CreateChild,
    DeleteChild,
    Observed,
    Pool,
    RelaySettings,
    RepairChild,
)
from isthmus.poolrelay.plan.ownership import is_ours, raw_owner

RULES: Final = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["nvidia.com"],
        "resources": ["dynamoworkermetadatas"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
)
"""What a relay's process may do in its namespace: see the workers, and register as one of their runtime does.
The operator must hold these rights itself to give them."""
_PARTS: Final = ("spec", "rules", "subjects")
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def render(relay: DynamoPoolRelay, pool: Pool, cluster_id: str, settings: RelaySettings) -> dict[str, Raw]:
    """The children by kind, in the order in which they are made."""
    spec = relay.spec
    assert isinstance(spec, RelaySpec)
    name = pool_relay_name(relay.metadata.name)
    bodies: dict[str, Raw] = {
        RELAY_SERVICE_ACCOUNTS.kind: {},
        RELAY_ROLES.kind: {"rules": list(RULES)},
        RELAY_ROLE_BINDINGS.kind: {
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": relay.metadata.namespace},
            ],
            "roleRef": {"apiGroup": RELAY_ROLES.group, "kind": RELAY_ROLES.kind, "name": name},
        },
        RELAY_SERVICES.kind: {"spec": _service(relay, spec)},
        RELAY_DEPLOYMENTS.kind: {"spec": _deployment(relay, spec, pool, cluster_id, settings)},
    }
    return {
        resource.kind: _whole(resource, relay, name, bodies[resource.kind]) for resource in RELAY_CHILDREN
    }


def _whole(resource: Resource[Any], relay: DynamoPoolRelay, name: str, raw_body: Raw) -> Raw:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": relay.metadata.namespace,
            "labels": {RELAY_LABEL: relay.metadata.name},
            "annotations": {HASH_ANNOTATION: hashlib.sha256(_encode(raw_body)).hexdigest()[:16]},
            "ownerReferences": [raw_owner(relay)],
        },
        **raw_body,
    }


def _service(relay: DynamoPoolRelay, spec: RelaySpec) -> Raw:
    ports = (("grpc", spec.grpc_port), ("system", spec.system_port))
    return {
        "type": "ClusterIP",
        "selector": {RELAY_LABEL: relay.metadata.name},
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports
        ],
    }


def _deployment(
    relay: DynamoPoolRelay, spec: RelaySpec, pool: Pool, cluster_id: str, settings: RelaySettings
) -> Raw:
    labels = {RELAY_LABEL: relay.metadata.name}
    raw_pod: Raw = {
        "serviceAccountName": pool_relay_name(relay.metadata.name),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets],
        "containers": [_container(spec, pool, cluster_id, settings)],
    }
    return {
        "replicas": spec.replicas,
        "strategy": {"type": "Recreate", "rollingUpdate": None},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": raw_pod},
    }


def _container(spec: RelaySpec, pool: Pool, cluster_id: str, settings: RelaySettings) -> Raw:
    raw_container: Raw = {
        "name": "relay",
        "image": spec.image or settings.image,
        "command": list(settings.command),
        "args": ["--cluster-id", cluster_id, "--bind", f"0.0.0.0:{spec.grpc_port}"],
        "env": _env(spec, pool),
        "ports": [
            {"name": "grpc", "containerPort": spec.grpc_port, "protocol": "TCP"},
            {"name": "system", "containerPort": spec.system_port, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/live", period_s=1, failures=60),
        "livenessProbe": _probe("/live", period_s=10, failures=3),
        "readinessProbe": _probe("/health", period_s=5, failures=3),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if spec.resources:
        raw_container["resources"] = msgspec.json.decode(spec.resources)
    return raw_container


def _probe(path: str, *, period_s: int, failures: int) -> Raw:
    return {
        "httpGet": {"path": path, "port": "system"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
    }


def _env(spec: RelaySpec, pool: Pool) -> list[Raw]:
    """Ours, and then the relay's own, which win by name."""
    namespaces = ",".join(pool.namespaces)
    ours: dict[str, Raw] = {
        name: {"name": name, "value": value}
        for name, value in (
            ("DYN_DISCOVERY_BACKEND", "kubernetes"),
            ("DYN_NAMESPACE", namespaces.partition(",")[0]),
            ("DYN_RELAY_NAMESPACES", namespaces),
            ("DYN_SYSTEM_PORT", str(spec.system_port)),
            ("ISTHMUS_POOL_KIND", pool.kind),
            ("ISTHMUS_POOL_NAME", pool.name),
            ("ISTHMUS_POOL_NAMESPACE", pool.namespace),
        )
        if value
    }
    for name, path in (
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_UID", "metadata.uid"),
    ):
        ours[name] = {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    theirs: list[Raw] = msgspec.json.decode(spec.env) if spec.env else []
    taken = {each.get("name") for each in theirs}
    return [*(each for name, each in ours.items() if name not in taken), *theirs]


def actions(observed: Observed, bodies: Mapping[str, Raw]) -> tuple[ChildAction, ...]:
    """What makes the children these. Every child that is there is this relay's by now."""
    found: list[ChildAction] = []
    for resource in RELAY_CHILDREN:
        raw_child, child = bodies[resource.kind], observed.children.get(resource.kind)
        if child is None:
            found.append(CreateChild(resource, raw_child))
        elif not child.metadata.terminating and not is_right(child, raw_child):
            found.append(RepairChild(resource, child, _repair(child, raw_child)))
    return tuple(found)


def is_right(child: RelayChild, raw_child: Raw) -> bool:
    """Whether it was rendered as this, and still has all of it (PR-99)."""
    raw_metadata = raw_child["metadata"]
    if child.metadata.annotations.hash != raw_metadata["annotations"][HASH_ANNOTATION]:
        return False
    if child.metadata.labels.relay != raw_metadata["labels"][RELAY_LABEL]:
        return False
    return all(
        covers(msgspec.json.decode(getattr(child, part) or b"null"), raw_child[part])
        for part in _PARTS
        if part in raw_child
    )


def _repair(child: RelayChild, raw_child: Raw) -> Raw:
    raw_metadata = raw_child["metadata"]
    identity = {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version}
    kept = {key: raw_metadata[key] for key in ("labels", "annotations")}
    return {"metadata": kept | identity} | {part: raw_child[part] for part in _PARTS if part in raw_child}


def withdrawals(observed: Observed) -> tuple[DeleteChild, ...]:
    """The deletion of the relay's Service, if it is this relay's (section 4); the rest stays, so that the
    relay is back at once."""
    service = observed.children.get(RELAY_SERVICES.kind)
    if service is None or service.metadata.terminating or not is_ours(service, observed.uid):
        return ()
    return (DeleteChild(RELAY_SERVICES, service),)
