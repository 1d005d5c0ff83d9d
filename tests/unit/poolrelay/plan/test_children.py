"""What a relay is made of, and when that has drifted (PR-19 to PR-21, PR-99)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.configuration import RelayDiscovery, RelayLocation
from isthmus.api.drift import covers
from isthmus.api.meta import Raw
from isthmus.poolrelay.plan.children import is_right, render, withdrawals
from isthmus.poolrelay.plan.model import (
    GRAPH_KIND,
    SERVING_KIND,
    CreateChild,
    Observed,
    RepairChild,
    Stranger,
)
from isthmus.poolrelay.plan.reconcile import plan, sort_children
from tests.support.relays import observed, pool, raw_owner, relay, settings, stored_child, twice

KINDS = ["ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"]


def rendered(of: Any = None) -> dict[str, Raw]:
    """The children of a relay."""
    return render(of or relay(), pool(), "one", settings())


def settled(of: Any = None) -> Observed:
    """A relay of which every child is there and right."""
    children = {kind: stored_child(body) for kind, body in rendered(of).items()}
    return observed(pool(), of=of, children=children)


def container(of: Any = None) -> Raw:
    """Its one container."""
    found: Raw = rendered(of)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.covers("PR-19", "PR-20", "PR-114")
def test_children_must_all_have_the_one_name_and_the_relay_as_their_controller() -> None:
    planned, _ = twice(observed(pool()))
    bodies = [step.body for step in planned.children if isinstance(step, CreateChild)]
    assert [body["kind"] for body in bodies] == KINDS
    assert {body["metadata"]["name"] for body in bodies} == {"east-pool-relay"}
    assert all(body["metadata"]["ownerReferences"] == [raw_owner()] for body in bodies)


@pytest.mark.covers("PR-21")
def test_deployment_must_run_the_configured_relay_once_at_a_time() -> None:
    spec = rendered()["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    found = container()
    assert found["image"] == "registry.example/relay:1"
    assert found["command"] == ["isthmus", "relay"]
    assert found["args"] == ["--cluster-id", "one", "--bind", "0.0.0.0:5561"]
    env = {each["name"]: each.get("value") for each in found["env"]}
    assert env["DYN_RELAY_NAMESPACES"] == "serving-east"
    assert (env["ISTHMUS_POOL_NAME"], env["ISTHMUS_POOL_NAMESPACE"]) == ("east", "serving")


@pytest.mark.covers("PR-21")
def test_service_must_select_by_the_relays_own_label_alone() -> None:
    service, deployment = rendered()["Service"]["spec"], rendered()["Deployment"]["spec"]
    assert service["selector"] == {"nvidia.com/dynamo-pool-relay": "east"}
    assert service["selector"] == deployment["template"]["metadata"]["labels"]
    assert [(port["name"], port["port"]) for port in service["ports"]] == [("grpc", 5561), ("system", 8081)]


@pytest.mark.covers("PR-17")
def test_relays_spec_must_reach_its_pod() -> None:
    of = relay(
        image="own:2",
        replicas=2,
        grpcPort=7000,
        systemPort=7001,
        imagePullSecrets=[{"name": "pull"}],
        resources={"limits": {"cpu": "0.5"}},
        env=[{"name": "DYN_NAMESPACE", "value": "mine"}, {"name": "MORE", "value": "1"}],
    )
    found, spec = container(of), rendered(of)["Deployment"]["spec"]
    assert (found["image"], spec["replicas"]) == ("own:2", 2)
    assert found["resources"] == {"limits": {"cpu": "0.5"}}
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    names = [each["name"] for each in found["env"]]
    assert names.count("DYN_NAMESPACE") == 1
    assert {"name": "DYN_NAMESPACE", "value": "mine"} in found["env"]
    assert [each["port"] for each in rendered(of)["Service"]["spec"]["ports"]] == [7000, 7001]


def test_pool_without_a_dynamo_namespace_must_give_no_empty_variable() -> None:
    bodies = render(relay(), pool(namespaces=()), "one", settings())
    (found,) = bodies["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {"DYN_NAMESPACE", "DYN_RELAY_NAMESPACES"}.isdisjoint(each["name"] for each in found["env"])


def rendered_with(kind: str = GRAPH_KIND, **changes: Any) -> dict[str, Raw]:
    """The children under other settings."""
    return render(relay(), pool(kind=kind), "one", settings(**changes))


def granted(bodies: dict[str, Raw]) -> set[tuple[str, str]]:
    """(resource, verb) of the Role."""
    rules = bodies["Role"]["rules"]
    return {(each, verb) for rule in rules for each in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.covers("RL-4")
def test_relay_must_see_what_its_pool_is_made_of_and_nothing_else() -> None:
    assert granted(rendered_with()) == {("endpointslices", "list"), ("endpointslices", "watch")}
    assert granted(rendered_with(SERVING_KIND)) == {("pods", "list"), ("pods", "watch")}
    upstream = granted(rendered_with(metadata_rights=True))
    verbs = {"get", "list", "watch", "create", "patch", "delete"}
    assert {verb for each, verb in upstream if each == "dynamoworkermetadatas"} == verbs


@pytest.mark.covers("RL-18")
def test_discovery_service_and_location_must_reach_the_pod() -> None:
    bodies = rendered_with(
        discovery=RelayDiscovery(url="https://hub", token_secret="hub-token", ca_config_map="hub-ca"),
        location=RelayLocation(region="r", zone="z", datacenter="d"),
    )
    pod = bodies["Deployment"]["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert {key: env[key] for key in ("ISTHMUS_REGION", "ISTHMUS_ZONE", "ISTHMUS_DATACENTER")} == {
        "ISTHMUS_REGION": "r",
        "ISTHMUS_ZONE": "z",
        "ISTHMUS_DATACENTER": "d",
    }
    assert env["ISTHMUS_DISCOVERY_URL"] == "https://hub"
    (mount,) = pod["containers"][0]["volumeMounts"]
    (volume,) = pod["volumes"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    sources = volume["projected"]["sources"]
    assert [each["optional"] for source in sources for each in source.values()] == [True, True]
    files = [item["path"] for source in sources for each in source.values() for item in each["items"]]
    told = [env["ISTHMUS_DISCOVERY_TOKEN_FILE"], env["ISTHMUS_DISCOVERY_CA_FILE"]]
    assert told == [f"{mount['mountPath']}/{file}" for file in files]


def test_pod_without_a_discovery_service_must_have_no_files_of_it() -> None:
    pod = rendered()["Deployment"]["spec"]["template"]["spec"]
    assert "volumes" not in pod
    assert "volumeMounts" not in pod["containers"][0]
    assert not {each["name"] for each in pod["containers"][0]["env"] if "DISCOVERY_URL" in each["name"]}
    assert "status.podIP" in str(pod["containers"][0]["env"])


@pytest.mark.covers("PR-71", "PR-99")
def test_children_that_are_right_must_be_left() -> None:
    assert plan(settled(), settings()).children == ()


@pytest.mark.parametrize(
    ("kind", "part", "change"),
    [
        ("Service", "spec", {"ports": [{"name": "grpc", "port": 9090}]}),
        ("Service", "spec", {"selector": {"app": "mine"}}),
        ("Deployment", "spec", {"replicas": 3}),
        ("Role", "rules", []),
        ("RoleBinding", "subjects", []),
    ],
)
@pytest.mark.covers("PR-99", "R38")
def test_child_that_drifted_must_be_put_right(kind: str, part: str, change: Any) -> None:
    seen = settled()
    body = rendered()[kind]
    drifted = stored_child(body | {part: body[part] | change if isinstance(change, dict) else change})
    planned, _ = twice(msgspec.structs.replace(seen, children={**seen.children, kind: drifted}))
    (step,) = planned.children
    assert isinstance(step, RepairChild)
    assert step.body[part] == body[part]
    assert step.body["metadata"]["uid"] == drifted.metadata.uid
    assert step.body["metadata"]["resourceVersion"] == drifted.metadata.resource_version


@pytest.mark.covers("PR-99")
@pytest.mark.parametrize("kind", KINDS)
def test_child_must_be_put_right_where_its_label_or_hash_is_gone(kind: str) -> None:
    for lost in ("labels", "annotations"):
        body = rendered()[kind]
        bare = stored_child(body | {"metadata": {**body["metadata"], lost: {}}})
        assert not is_right(bare, body)


@pytest.mark.covers("PR-99")
@pytest.mark.parametrize(
    ("kind", "part"), [("Service", "spec"), ("Role", "rules"), ("RoleBinding", "subjects")]
)
def test_child_without_the_part_at_all_must_be_put_right(kind: str, part: str) -> None:
    body = rendered()[kind]
    assert not is_right(stored_child({name: value for name, value in body.items() if name != part}), body)


@pytest.mark.covers("PR-91")
def test_changed_cluster_id_must_reach_the_deployment_alone() -> None:
    planned, _ = twice(msgspec.structs.replace(settled(), relay=relay(clusterId="two")))
    (step,) = planned.children
    assert isinstance(step, RepairChild)
    assert step.resource.kind == "Deployment"
    arguments = step.body["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[1] == "two"


@pytest.mark.covers("PR-71")
def test_what_the_api_server_adds_must_not_be_drift() -> None:
    of = relay(resources={"limits": {"cpu": "0.5"}}, env=[{"name": "EMPTY", "value": ""}])
    body = rendered(of)["Deployment"]
    live = msgspec.json.decode(msgspec.json.encode(body))
    del live["spec"]["strategy"]["rollingUpdate"]
    del live["spec"]["template"]["spec"]["imagePullSecrets"]
    live["spec"]["progressDeadlineSeconds"] = 600
    (one,) = live["spec"]["template"]["spec"]["containers"]
    one["resources"] = {"limits": {"cpu": "500m"}}
    one["terminationMessagePath"] = "/dev/termination-log"
    (empty,) = [each for each in one["env"] if each["name"] == "EMPTY"]
    del empty["value"]
    assert is_right(stored_child(live), body)


@pytest.mark.parametrize(
    ("live", "wanted", "right"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 1}, False),
        ({}, {"a": None}, True),
        ({"a": 1}, {"a": None}, False),
        ([1, 2], [1], False),
        ([1], [1, 2], False),
        ([1], [2], False),
        ("ab", ["a", "b"], False),
        ([{"a": 1, "b": 2}], [{"a": 1}], True),
        ("x", {"a": 1}, False),
        ({"a": 1}, [1], False),
        (None, [], True),
        (True, True, True),
    ],
)
@pytest.mark.covers("PR-99")
def test_covers_must_allow_more_but_nothing_else(live: Any, wanted: Any, right: bool) -> None:
    assert covers(live, wanted) is right


@pytest.mark.covers("PR-20", "PR-29", "T-21", "T-83")
def test_child_of_another_must_be_a_stranger_and_never_touched() -> None:
    ours, theirs = stored_child(rendered()["Service"]), rendered()["Deployment"]
    theirs["metadata"]["ownerReferences"] = [raw_owner("earlier")]
    found, strangers = sort_children({"Service": ours, "Deployment": stored_child(theirs)}, "relay-uid")
    assert list(found) == ["Service"]
    assert strangers == (Stranger("Deployment", "east-pool-relay", "controlled by DynamoPoolRelay east"),)
    planned = plan(observed(pool(), children=found, strangers=strangers), settings())
    assert [step.resource.kind for step in planned.children] == ["Service"]


@pytest.mark.covers("PR-36")
def test_withdrawal_must_take_the_service_alone_and_only_ours() -> None:
    seen = settled()
    (step,) = withdrawals(seen)
    assert step.resource.kind == "Service"
    body = rendered()["Service"]
    body["metadata"]["ownerReferences"] = []
    assert withdrawals(observed(None, children={"Service": stored_child(body)})) == ()
    dying = rendered()["Service"]
    dying["metadata"]["deletionTimestamp"] = "2026-09-21T14:13:20Z"
    assert withdrawals(observed(None, children={"Service": stored_child(dying)})) == ()


@pytest.mark.covers("PR-99")
def test_child_on_its_way_out_must_be_waited_for() -> None:
    body = rendered()["Service"]
    body["metadata"]["deletionTimestamp"] = "2026-09-21T14:13:20Z"
    body["spec"] = {}
    seen = settled()
    planned = plan(
        msgspec.structs.replace(seen, children={**seen.children, "Service": stored_child(body)}), settings()
    )
    assert planned.children == ()
