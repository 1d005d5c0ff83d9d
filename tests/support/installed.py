"""The chart, installed: its objects on a real API server, and a kubeconfig of the service account it made.

The operator itself runs as a process of the test, so its Deployment and what belongs to that are only shown
to the API server; everything else is created. What the service account then asked for is in the audit log:
`used` has it as rights, to be held against those that the rendered roles grant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from isthmus.api.meta import Raw
from isthmus.sandbox import Cluster
from tests.support.chart import Right, config_text, of_kind, one, rights

DRY: Final = ("Deployment", "PodDisruptionBudget")
_PLURALS: Final = {
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ConfigMap": "configmaps",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}
TOKEN_S: Final = 3600


class Installed(NamedTuple):
    """What an operator process needs, and who it then is. `config`: the rendered configuration file."""

    kubeconfig: Path
    config: Path
    user: str
    granted: set[Right]


def install(cluster: Cluster, objects: list[Raw], folder: Path) -> Installed:
    """Create what was rendered, in its order, with no unknown field let through; namespaces must be there."""
    for each in objects:
        _create(cluster, each)
    meta = one(objects, "ServiceAccount")["metadata"]
    raw_request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_S},
    }
    answer = cluster.request(
        f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{meta['name']}/token",
        method="POST",
        body=raw_request,
    )
    raw_kubeconfig = json.loads(cluster.kubeconfig().read_text())
    raw_kubeconfig["users"][0]["user"] = {"token": answer["status"]["token"]}
    kubeconfig, config = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(json.dumps(raw_kubeconfig))
    config.write_text(config_text(objects))
    user = f"system:serviceaccount:{meta['namespace']}:{meta['name']}"
    return Installed(kubeconfig, config, user, rights(*of_kind(objects, "Role", "ClusterRole")))


def used(cluster: Cluster, user: str) -> tuple[set[Right], list[str]]:
    """The rights that the user's requests have needed, and those that were refused as forbidden, as text."""
    needed, refused = set(), []
    for event in cluster.audit_events(user):
        target = event.get("objectRef", {})
        if not target.get("resource"):
            continue
        resource = "/".join(filter(None, (target["resource"], target.get("subresource", ""))))
        needed.add((target.get("apiGroup", ""), resource, event["verb"]))
        if event.get("responseStatus", {}).get("code") == 403:
            refused.append(f"{event['verb']} {event['requestURI']}")
    return needed, refused


def _create(cluster: Cluster, obj: Raw) -> None:
    meta, version = obj["metadata"], obj["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
    query = "fieldValidation=Strict" + ("&dryRun=All" if obj["kind"] in DRY else "")
    cluster.request(f"{root}/{where}{_PLURALS[obj['kind']]}?{query}", method="POST", body=obj)
