"""A ModelServing comes up: names, labels, env, owners, Services, history, status and events."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from tests.support.eventually import eventually
from tests.support.manifests import container, pod_template, role
from tests.support.operator import OperatorProcess
from tests.support.world import PREFIX, World, expected, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

ENV = ("GROUP_SIZE", "ENTRY_ADDRESS", "WORKER_INDEX")


def env_of(raw_container: Raw) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in raw_container.get("env", [])}


def owner_of(obj: Raw) -> Raw:
    (owner,) = obj["metadata"]["ownerReferences"]
    return dict(owner)


@pytest.mark.covers("MS-21", "MS-22", "MS-27", "MS-28", "MS-32", "MS-33", "MS-77", "MS-433", "MS-442")
async def test_objects_must_have_exact_names_labels_owners_and_selectors(world: World) -> None:
    world.create(serving("a", 2, team("prefill", 2, 1), team("de-code", 1, 0)))
    found = await world.settled()
    owner = {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "name": "a",
        "uid": found["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pods = world.pods()
    assert set(pods) == {
        *(f"a-{g}-prefill-{r}-{i}" for g in range(2) for r in range(2) for i in range(2)),
        *(f"a-{g}-de-code-0-0" for g in range(2)),
    }
    (revision,) = world.revisions().values()
    for name, pod in pods.items():
        group, role_name = name[:3], "prefill" if "prefill" in name else "de-code"
        index = name.rpartition("-")[2]
        wanted = {
            "name": "a",
            "group-name": group,
            "role": role_name,
            "role-id": f"{role_name}-{name.split('-')[-2]}",
            "revision": revision["metadata"]["labels"][PREFIX + "revision"],
            "entry": "true" if index == "0" else "",
        }
        assert {key: label(pod, key) for key in wanted} == wanted
        assert owner_of(pod) == owner
        assert pod["spec"]["schedulerName"] == "volcano"
    hashes = {label(pod, "role"): label(pod, "role-template-hash") for pod in pods.values()}
    assert len({label(pod, "role-template-hash") for pod in pods.values()}) == len(set(hashes.values())) == 2
    services = world.services()
    assert set(services) == {f"a-{g}-prefill-{r}-0" for g in range(2) for r in range(2)}
    for name, service in services.items():
        place = {"group-name": name[:3], "role": "prefill", "role-id": f"prefill-{name[-3]}"}
        assert service["spec"]["selector"] == {PREFIX + k: v for k, v in (place | {"entry": "true"}).items()}
        assert {key: label(service, key) for key in (*place, "name")} == place | {"name": "a"}
        assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
        assert "ports" not in service["spec"]
        assert owner_of(service) == owner
    assert owner_of(revision) == owner
    assert revision["revision"] == 1
    assert revision["metadata"]["name"] == f"a-{label(revision, 'revision')}"
    assert [each["name"] for each in revision["data"]["data"]] == ["prefill", "de-code"]


@pytest.mark.covers("MS-26", "MS-29", "MS-415")
async def test_pods_must_carry_the_template_and_our_environment_last(world: World) -> None:
    engine = container(
        env=[{"name": "MODEL", "value": "m"}],
        ports=[{"containerPort": 8000}],
    )
    metadata = {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    template = {**pod_template(engine, initContainers=[container(name="init")]), "metadata": metadata}
    world.create(
        serving("a", 1, role("p", workerReplicas=1, entryTemplate=template, workerTemplate=template))
    )
    await world.settled()
    for index, name in enumerate(("a-0-p-0-0", "a-0-p-0-1")):
        pod = world.pods()[name]
        ours = {
            "GROUP_SIZE": "2",
            "ENTRY_ADDRESS": f"a-0-p-0-0.{world.namespace}",
            "WORKER_INDEX": str(index),
        }
        (main,), (init,) = pod["spec"]["containers"], pod["spec"]["initContainers"]
        assert env_of(main) == {"MODEL": "m", **ours}
        assert [each["name"] for each in main["env"]][-3:] == list(ENV)
        assert env_of(init) == ours
        assert pod["metadata"]["labels"]["app"] == "x"
        assert pod["metadata"]["annotations"]["note"] == "y"
        assert main["ports"] == [{"containerPort": 8000, "protocol": "TCP"}]


@pytest.mark.covers("MS-8", "MS-100", "MS-101", "MS-102", "MS-103", "MS-104", "MS-105", "MS-433")
async def test_status_must_tell_counts_revisions_selector_and_conditions(world: World) -> None:
    world.create(serving("a", 2))
    found = await world.settled()
    (revision,) = world.revisions().values()
    name = label(revision, "revision")
    status = found["status"]
    (available,) = (c for c in status.pop("conditions") if c["type"] == "Available")
    assert status == {
        "observedGeneration": 1,
        "replicas": 2,
        "currentReplicas": 2,
        "updatedReplicas": 2,
        "availableReplicas": 2,
        "currentRevision": name,
        "updateRevision": name,
        "labelSelector": f"{PREFIX}entry=true,{PREFIX}name=a,{PREFIX}role-id=p-0,{PREFIX}role=p",
    }
    assert (available["status"], available["reason"]) == ("True", "AllGroupsReady")
    assert available["observedGeneration"] == 1
    selected = world.find(SERVING_PODS, status["labelSelector"])
    assert set(selected) == {"a-0-p-0-0", "a-1-p-0-0"}


@pytest.mark.covers("MS-104", "MS-433")
async def test_status_must_say_which_groups_are_not_ready_and_end_it_when_they_are(world: World) -> None:
    template = pod_template() | {"metadata": {"annotations": {"sandbox.isthmus.dev/fault": "never-ready"}}}
    world.create(serving("a", 2, role("p", entryTemplate=template)))

    async def progressing() -> None:
        condition = world.condition("Progressing")
        assert condition.get("status") == "True", world.status()
        assert condition["reason"] == "GroupProgressing"
        assert "[0 1]" in condition["message"]
        assert world.condition("Available")["status"] == "False"
        assert set(world.pods()) == {"a-0-p-0-0", "a-1-p-0-0"}

    await eventually(progressing)
    world.fault("a-1-p-0-0", "none")

    async def half() -> None:
        assert world.status().get("availableReplicas") == 1
        assert "[0]" in world.condition("Progressing")["message"]

    await eventually(half)
    world.fault("a-0-p-0-0", "none")
    await world.settled()
    assert {c["type"]: c["status"] for c in world.status()["conditions"]} == {
        "Available": "True",
        "Progressing": "False",
    }


@pytest.mark.covers("MS-106", "MS-41")
async def test_events_must_tell_the_states_of_roles_with_the_entry_pod_as_related(world: World) -> None:
    world.create(serving("a", 1))
    await world.settled()

    async def told() -> None:
        reasons = {event["reason"] for event in world.events()}
        assert reasons == {"RoleCreating", "RoleRunning"}

    await eventually(told)
    for event in world.events():
        assert event["type"] == "Normal"
        assert event["reportingController"] == "isthmus.dev/modelserving-controller"
        assert event["regarding"]["kind"] == "ModelServing"
        assert event["regarding"]["uid"] == world.serving()["metadata"]["uid"]
        assert (event["related"]["kind"], event["related"]["name"]) == ("Pod", "a-0-p-0-0")
        assert "p-0" in event["note"]
        assert "a-0" in event["note"]


@pytest.mark.covers("MS-47", "MS-38", "MS-39")
async def test_dump_must_equal_what_the_api_server_says(world: World, operator: OperatorProcess) -> None:
    world.create(serving("a", 2, team("p", 2, 1), team("d", 1, 0)))
    await world.settled()
    (revision,) = (label(each, "revision") for each in world.revisions().values())

    async def same() -> None:
        dump = await operator.dump(f"?namespace={world.namespace}")
        assert set(dump) == {f"{world.namespace}/a"}
        groups = dump[f"{world.namespace}/a"]
        pods = world.pods()
        assert {g: sorted(v["runningPods"]) for g, v in groups.items()} == {
            g: sorted(p for p, pod in pods.items() if label(pod, "group-name") == g) for g in ("a-0", "a-1")
        }
        for name, group in groups.items():
            assert (group["name"], group["status"], group["revision"]) == (name, "Running", revision)
            assert set(group["roles"]) == {"p", "d"}
            assert set(group["roles"]["p"]) == {"p-0", "p-1"}
            for role_name, instances in group["roles"].items():
                for id_, instance in instances.items():
                    entry = pods[f"{name}-{id_}-0"]
                    assert label(entry, "role") == role_name
                    assert instance == {
                        "name": id_,
                        "revision": revision,
                        "roleTemplateHash": label(entry, "role-template-hash"),
                        "status": "Running",
                    }

    await eventually(same)


@pytest.mark.covers("MS-32", "MS-299")
@pytest.mark.parametrize(
    ("roles", "pods", "services"),
    [
        ([team("p", 1, 0)], {"a-0-p-0-0"}, set()),
        ([{**team("p", 1, 1), "workerReplicas": 0}], {"a-0-p-0-0"}, {"a-0-p-0-0"}),
        ([team("p", 0, 1)], set(), set()),
    ],
    ids=["no-worker-template", "no-workers", "no-replicas"],
)
async def test_small_layouts_must_come_up(
    world: World, roles: list[Raw], pods: set[str], services: set[str]
) -> None:
    world.create(serving("a", 1, *roles))
    await world.settled() if pods else None

    async def available() -> None:
        assert world.condition("Available").get("status") == "True", world.status()
        assert (set(world.pods()), set(world.services())) == (pods, services)

    await eventually(available)


@pytest.mark.covers("MS-410")
async def test_zero_replicas_from_the_start_must_be_said_in_status(world: World) -> None:
    world.create(serving("a", 0))

    async def told() -> None:
        status = world.status()
        assert status.get("observedGeneration") == 1
        assert world.condition("Available")["status"] == "True"
        assert status["labelSelector"]
        assert not world.pods()

    await eventually(told)


def engines(*names: str, init: bool = False, **spec: Any) -> Raw:
    more = {"initContainers": [container(name="prepare")]} if init else {}
    return pod_template(*(container(name=each) for each in names or ("engine",)), **more, **spec)


def example(name: str, replicas: int, sizes: dict[str, tuple[int, int]], **spec: Any) -> Raw:
    """A layout of the examples: role name to (replicas, workers)."""
    roles = [
        role(each, replicas=count, workerReplicas=workers, entryTemplate=engines(), workerTemplate=engines())
        for each, (count, workers) in sizes.items()
    ]
    return serving(name, replicas, *roles, template={"restartGracePeriodSeconds": 60}, **spec)


BOTH = ("prefill", "decode")
GANG = {"gangPolicy": {"minRoleReplicas": {"prefill": 2, "decode": 1}}}
EXAMPLES = {
    "sample": (example("sample", 1, dict.fromkeys(BOTH, (1, 3))), 8, 2),
    "gang": (example("sample", 1, dict.fromkeys(BOTH, (2, 1))), 8, 4),
    "network-topology": (example("sample", 1, dict.fromkeys(BOTH, (1, 1))), 4, 2),
    "multi-node": (example("llama-multinode", 1, {"llama-405b": (2, 1)}), 4, 2),
    "rollingupdate": (
        example(
            "sample",
            4,
            dict.fromkeys(BOTH, (1, 1)),
            rolloutStrategy={
                "type": "ServingGroupRollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 2},
            },
        ),
        16,
        8,
    ),
    "role-rollingupdate": (
        example("sample", 2, dict.fromkeys(BOTH, (1, 1)), rolloutStrategy={"type": "RoleRollingUpdate"}),
        8,
        4,
    ),
    "vllm-pd-multinode": (
        example("vllm-pd-multinode", 1, dict.fromkeys(BOTH, (1, 1)), recoveryPolicy="ServingGroupRecreate"),
        4,
        2,
    ),
    "prefill-decode": (
        serving(
            "deepseek-v2-lite",
            1,
            *(
                role(
                    each,
                    workerReplicas=0,
                    entryTemplate=engines("sidecar", "engine", init=True),
                    workerTemplate={"spec": {"containers": []}},
                )
                for each in BOTH
            ),
            recoveryPolicy="ServingGroupRecreate",
        ),
        2,
        2,
    ),
}
EXAMPLES["gang"][0]["spec"]["template"] |= GANG
EXAMPLES["network-topology"][0]["spec"]["template"] |= {
    "networkTopology": {
        "groupPolicy": {"mode": "hard", "highestTierAllowed": 1},
        "rolePolicy": {"mode": "hard", "highestTierAllowed": 1},
    }
}


@pytest.mark.covers("MS-21", "MS-22", "MS-32", "MS-99", "R11")
async def test_example_layouts_must_come_up_without_the_podgroup_api(world: World) -> None:
    """All eight at once, each under a name of its own."""
    due = {}
    for number, (manifest, pods, services) in enumerate(EXAMPLES.values()):
        name = f"{manifest['metadata']['name'][:8].rstrip('-')}-{number}"
        manifest = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
        world.create(manifest)
        due[name] = (pods, services)
    for name, (pods, services) in due.items():
        found = await world.settled(name)
        names = expected(found)
        assert (len(names.pods), len(names.services)) == (pods, services)
        assert len(world.revisions(name)) == 1


@pytest.mark.covers("MS-416")
async def test_orphans_must_be_adopted_and_not_replaced(world: World) -> None:
    command = {"command": ["sh", "-c", "a < b && c > d"]}  # which Go writes otherwise than others do
    each = role("p", workerReplicas=1, entryTemplate=pod_template(container(**command)))
    manifest = serving("a", 1, {**each, "workerTemplate": pod_template()})
    world.create(manifest)
    before = await world.settled()
    uids = world.uids()
    services = {name: each["metadata"]["uid"] for name, each in world.services().items()}
    world.delete(MODEL_SERVINGS, "a", propagation="Orphan")

    async def orphaned() -> None:
        assert world.api.get(MODEL_SERVINGS, world.namespace, "a").code == 404

    await eventually(orphaned)
    assert not any("ownerReferences" in each["metadata"] for each in world.pods().values())
    world.create(manifest)
    after = await world.settled()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert world.uids() == uids
    assert {name: each["metadata"]["uid"] for name, each in world.services().items()} == services
    (revision,) = world.revisions().values()
    assert owner_of(revision)["uid"] == after["metadata"]["uid"]
    assert len(world.find(CONTROLLER_REVISIONS)) == len(world.find(SERVING_SERVICES)) == 1


@pytest.mark.covers("MS-415")
async def test_template_must_not_set_our_labels(world: World) -> None:
    template = pod_template() | {"metadata": {"labels": {PREFIX + "group-name": "group-0"}}}
    manifest = serving("a", 1, role("p", entryTemplate=template))
    manifest["metadata"]["namespace"] = world.namespace
    answer = world.api.create(MODEL_SERVINGS, manifest)
    assert answer.code == 422
    assert "modelserving.volcano.sh/" in answer.message
