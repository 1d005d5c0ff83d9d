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

from isthmus.api.configuration import RelayDiscovery
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
    GRAPH_KIND,
    ChildAction,
    CreateChild,
    DeleteChild,
    Observed,
    Pool,
    RelaySettings,
    RepairChild,
)
from isthmus.poolrelay.plan.ownership import is_ours, raw_owner

SEE_ENDPOINTS: Final = (
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
)
SEE_PODS: Final = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},)
KEEP_METADATA: Final = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["nvidia.com"],
        "resources": ["dynamoworkermetadatas"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
)
"""What upstream's relay needs: it registers in its pool's runtime as one of the workers does (RL-4)."""
DISCOVERY_FILES: Final = "/etc/isthmus/discovery"
_PARTS: Final = ("spec", "rules", "subjects")
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def render(relay: DynamoPoolRelay, pool: Pool, cluster_id: str, settings: RelaySettings) -> dict[str, Raw]:
    """The children by kind, in the order in which they are made."""
    spec = relay.spec
    assert isinstance(spec, RelaySpec)
    name = pool_relay_name(relay.metadata.name)
    bodies: dict[str, Raw] = {
        RELAY_SERVICE_ACCOUNTS.kind: {},
        RELAY_ROLES.kind: {"rules": list(rules(pool, settings))},
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


def rules(pool: Pool, settings: RelaySettings) -> tuple[Raw, ...]:
    """What a relay's process may do in its namespace: see who belongs to its pool, and nothing else. The
    operator must hold these rights itself to give them."""
    if settings.metadata_rights:
        return KEEP_METADATA
    return SEE_ENDPOINTS if pool.kind == GRAPH_KIND else SEE_PODS


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
    if sources := _files(settings.discovery):
        raw_pod["volumes"] = [{"name": "discovery", "projected": {"sources": sources}}]
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
        "env": _env(spec, pool, settings),
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
    if _files(settings.discovery):
        raw_container["volumeMounts"] = [
            {"name": "discovery", "mountPath": DISCOVERY_FILES, "readOnly": True},
        ]
    return raw_container


def _files(discovery: RelayDiscovery) -> list[Raw]:
    """The sources of the volume with the discovery service's token and CA. They are optional, so that a relay
    serves, and says what is missing, where one is not there yet."""
    found: list[Raw] = []
    if discovery.token_secret:
        items = [{"key": "token", "path": "token"}]
        found.append({"secret": {"name": discovery.token_secret, "items": items, "optional": True}})
    if discovery.ca_config_map:
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        found.append({"configMap": {"name": discovery.ca_config_map, "items": items, "optional": True}})
    return found


def _probe(path: str, *, period_s: int, failures: int) -> Raw:
    return {
        "httpGet": {"path": path, "port": "system"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
    }


def _env(spec: RelaySpec, pool: Pool, settings: RelaySettings) -> list[Raw]:
    """Ours, and then the relay's own, which win by name."""
    namespaces = ",".join(pool.namespaces)
    discovery, location = settings.discovery, settings.location
    ours: dict[str, Raw] = {
        name: {"name": name, "value": value}
        for name, value in (
            ("DYN_DISCOVERY_BACKEND", "kubernetes"),
            ("DYN_NAMESPACE", namespaces.partition(",")[0]),
            ("DYN_RELAY_NAMESPACES", namespaces),
            ("DYN_SYSTEM_PORT", str(spec.system_port)),
            ("ISTHMUS_DATACENTER", location.datacenter),
            ("ISTHMUS_DISCOVERY_CA_FILE", f"{DISCOVERY_FILES}/ca.crt" if discovery.ca_config_map else ""),
            ("ISTHMUS_DISCOVERY_TOKEN_FILE", f"{DISCOVERY_FILES}/token" if discovery.token_secret else ""),
            ("ISTHMUS_DISCOVERY_URL", discovery.url),
            ("ISTHMUS_POOL_KIND", pool.kind),
            ("ISTHMUS_POOL_NAME", pool.name),
            ("ISTHMUS_POOL_NAMESPACE", pool.namespace),
            ("ISTHMUS_REGION", location.region),
            ("ISTHMUS_ZONE", location.zone),
        )
        if value
    }
    for name, path in (
        ("POD_IP", "status.podIP"),
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
