"""The roles that charts/isthmus renders: which there are, where, for whom, and what they grant."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Raw
from isthmus.poolrelay.plan.children import rules
from isthmus.poolrelay.plan.model import GRAPH_KIND, SERVING_KIND, RelaySettings
from isthmus.sandbox import rbac
from tests.support.chart import CLUSTER_NAME, NAMESPACE, Right, exporting, of_kind, one, render, rights
from tests.support.relays import pool

READER = f"{CLUSTER_NAME}-clusterproperty-reader"
EXPORTS = {
    ("multicluster.x-k8s.io", "serviceexports", verb)
    for verb in ("create", "delete", "get", "list", "patch", "watch")
}
PROPERTIES = {("about.k8s.io", "clusterproperties", verb) for verb in ("get", "list", "watch")}


def restricted(target: str = "team-a", **values: Any) -> Raw:
    return exporting(namespaceRestriction={"enabled": True, "targetNamespace": target}, **values)


def about(group: str, granted: set[Right]) -> set[Right]:
    return {right for right in granted if right[0] == group}


@pytest.mark.covers("PR-102", "PR-103", "PR-104", "PR-106", "T-137", "MS-119", "GD-52")
@pytest.mark.parametrize("values", [{}, exporting()], ids=["off", "mcs"])
def test_cluster_wide_install_must_have_cluster_roles(values: Raw) -> None:
    objects = render(values)
    assert about("multicluster.x-k8s.io", rights(one(objects, "ClusterRole", CLUSTER_NAME))) == EXPORTS
    assert rights(one(objects, "ClusterRole", READER)) == PROPERTIES
    assert [each["metadata"]["name"] for each in of_kind(objects, "Role")] == [f"{CLUSTER_NAME}-lease"]


@pytest.mark.covers("PR-102", "PR-103", "PR-104", "T-138", "MS-119", "GD-52")
def test_restricted_install_must_have_a_role_and_one_cluster_role_for_the_property() -> None:
    objects = render(restricted())
    role = one(objects, "Role", CLUSTER_NAME)
    assert role["metadata"]["namespace"] == "team-a"
    assert about("multicluster.x-k8s.io", rights(role)) == EXPORTS
    assert rights(*of_kind(objects, "ClusterRole")) == PROPERTIES
    assert one(objects, "ClusterRole")["metadata"]["name"] == READER
    binding = one(objects, "RoleBinding", CLUSTER_NAME)
    assert binding["metadata"]["namespace"] == "team-a"
    assert one(objects, "ClusterRoleBinding")["roleRef"]["name"] == READER


def test_both_installs_must_grant_the_same() -> None:
    whole, part = render(exporting()), render(restricted())
    looks = {("coordination.k8s.io", "leases", verb) for verb in ("list", "watch")}  # for others' claims
    assert rights(*of_kind(whole, "Role", "ClusterRole")) - looks == rights(
        *of_kind(part, "Role", "ClusterRole")
    )


def test_restriction_without_a_target_must_mean_the_releases_namespace() -> None:
    objects = render(restricted(""))
    assert one(objects, "Role", CLUSTER_NAME)["metadata"]["namespace"] == NAMESPACE


@pytest.mark.covers("T-139", "PR-104")
@pytest.mark.parametrize("values", [exporting(), restricted()], ids=["cluster-wide", "restricted"])
def test_every_binding_must_bind_the_operators_account_to_a_role_that_there_is(values: Raw) -> None:
    objects = render(values)
    account = one(objects, "ServiceAccount")["metadata"]
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    roles = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in of_kind(objects, "Role", "ClusterRole")
    }
    bound = set()
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"], subject["namespace"]) == (
            "ServiceAccount",
            account["name"],
            NAMESPACE,
        )
        ref = binding["roleRef"]
        bound.add((ref["kind"], binding["metadata"].get("namespace"), ref["name"]))
    assert bound == roles


@pytest.mark.covers("PR-102", "T-140")
def test_nothing_of_others_may_be_updated() -> None:
    granted = rights(*of_kind(render(exporting()), "Role", "ClusterRole"))
    updated = {resource for _, resource, verb in granted if verb == "update"}
    assert all(resource.endswith("/finalizers") for resource in updated - {"dynamoworkermetadatas"})
    assert not {right for right in granted if "*" in right}
    assert not {resource for _, resource, _ in granted if resource == "secrets"}


def test_leases_must_be_granted_in_their_namespace_only_and_only_where_one_leads() -> None:
    elsewhere = exporting(controllerManager={"leaderElection": {"namespace": "leases"}})
    role = one(render(elsewhere), "Role")
    assert (role["metadata"]["namespace"], rights(role)) == (
        "leases",
        {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "patch")},
    )
    alone = exporting(replicas=1, controllerManager={"leaderElection": {"enabled": False}})
    assert of_kind(render(alone), "Role") == []


@pytest.mark.covers("PR-106")
@pytest.mark.parametrize(
    ("controllers", "groups"),
    [
        (["modelserving"], {"workload.serving.volcano.sh"}),
        (["graph"], {"nvidia.com"}),
        (["poolrelay"], {"nvidia.com", "multicluster.x-k8s.io", "about.k8s.io"}),
    ],
)
def test_controllers_that_do_not_run_must_be_granted_nothing(
    controllers: list[str], groups: set[str]
) -> None:
    objects = render(exporting(controllers=controllers))
    granted = {group for group, _, _ in rights(*of_kind(objects, "Role", "ClusterRole"))}
    ours = {"workload.serving.volcano.sh", "nvidia.com", "multicluster.x-k8s.io", "about.k8s.io"}
    reads = {"workload.serving.volcano.sh"} if controllers == ["poolrelay"] else set()
    assert granted & ours == groups | reads
    assert one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"][-1] == (
        f"--controllers={','.join(controllers)}"
    )


@pytest.mark.covers("RL-4")
@pytest.mark.parametrize("upstream", [False, True], ids=["isthmus", "upstream"])
def test_operator_must_be_granted_what_it_gives_to_relays(upstream: bool) -> None:
    objects = render(exporting(controllers=["poolrelay"], relay={"metadataRights": upstream}))
    granted = rights(*of_kind(objects, "Role", "ClusterRole"))
    chosen = RelaySettings(image="x", metadata_rights=upstream)
    given = {
        (group, resource, verb)
        for kind in (GRAPH_KIND, SERVING_KIND)
        for rule in rules(pool(kind=kind), chosen)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given <= granted
    metadata = {verb for _, resource, verb in granted if resource == "dynamoworkermetadatas"}
    assert bool(metadata) == upstream


@pytest.mark.covers("MS-118")
def test_chart_must_grant_what_is_documented_and_no_more() -> None:
    granted = rights(*of_kind(render(exporting()), "Role", "ClusterRole"))
    assert granted == rights(rbac.operator_role())
