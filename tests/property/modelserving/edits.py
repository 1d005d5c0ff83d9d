"""What a person may change in a spec midway, as steps of a script: a word and a number that says to what."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.api.meta import Raw
from tests.property.modelserving.world import World
from tests.support import manifests
from tests.support.serving import role

IMAGES = ("one", "two", "three", "bad")
POLICIES = ("RoleRecreate", "ServingGroupRecreate", "None")
MAX_UNAVAILABLE = (1, 2, "50%", "10%")
PARTITIONS = (None, 0, 1, 2, "50%", 9)


def set_image(raw_role: Raw, image: str) -> None:
    """Give the role's pods this image."""
    for field in ("entryTemplate", "workerTemplate"):
        if raw_role.get(field):
            raw_role[field] = manifests.pod_template(manifests.container(image=image))


def _role(spec: Raw, number: int) -> Raw:
    roles: list[Raw] = spec["template"]["roles"]
    return roles[number % len(roles)]


def _image(spec: Raw, number: int) -> None:
    set_image(_role(spec, number), IMAGES[number // 2 % 4])


def _workers(spec: Raw, number: int) -> None:
    each, workers = _role(spec, number), number // 2 % 3
    template = manifests.pod_template(manifests.container(image=IMAGES[number // 6 % 4]))
    each.update(workerReplicas=workers, workerTemplate=template if workers else None)


def _roles(spec: Raw, number: int) -> None:
    """Remove a role, add one, or both."""
    roles = spec["template"]["roles"]
    if len(roles) > 1 and number & 1:
        roles.pop(number >> 1 & 1)
    if "new" not in {each["name"] for each in roles} and number & 4:
        roles.append(role("new", number >> 3 & 1, number >> 4 & 1))


def _strategy(spec: Raw, number: int) -> None:
    budget = MAX_UNAVAILABLE[number // 2 % 4]
    partition = PARTITIONS[number // 8 % 6]
    if number & 1 and spec.get("recoveryPolicy") != "ServingGroupRecreate":
        spec["rolloutStrategy"] = {"type": "RoleRollingUpdate"}
        _role(spec, number // 48).update(partition=partition, maxUnavailable=budget)
        return
    for each in spec["template"]["roles"]:
        each["partition"] = None
    spec["rolloutStrategy"] = {
        "type": "ServingGroupRollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": budget, "partition": partition},
    }


def _policy(spec: Raw, number: int) -> None:
    by_role = (spec.get("rolloutStrategy") or {}).get("type") == "RoleRollingUpdate"
    policy = POLICIES[number % 3]
    if not (by_role and policy == "ServingGroupRecreate"):  # refused at admission (MS-20)
        spec["recoveryPolicy"] = policy


def _in_one(spec: Raw, number: int) -> None:
    """Scale and roll in one edit."""
    _image(spec, number)
    _role(spec, number // 8)["replicas"] = number // 16 % 4
    spec["replicas"] = number // 64 % 6


CHANGES: dict[str, Callable[[Raw, int], None]] = {
    "image": _image,
    "replicas": lambda spec, number: spec.update(replicas=number % 6),
    "role replicas": lambda spec, number: _role(spec, number).update(replicas=number // 2 % 4),
    "workers": _workers,
    "roles": _roles,
    "strategy": _strategy,
    "policy": _policy,
    "all in one": _in_one,
}


def edit(world: World, word: str, number: int) -> None:
    """Make one change."""
    world.edit(lambda spec: CHANGES[word](spec, number))


def heal(world: World) -> None:
    """What a person must do before everything can become ready: mend images, and remove pods that ended for
    good where the policy is to leave failures alone."""

    def mend(spec: Raw) -> None:
        for each in spec["template"]["roles"]:
            if "bad" in str(each):
                set_image(each, "mended")

        if any(b'"bad"' in bytes(revision.data) for revision in world.revisions.values()):
            for each in spec["template"]["roles"]:
                each["partition"] = None  # what is protected could never become ready
            rolling = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration")
            if rolling:
                rolling["partition"] = None

    world.edit(mend)
    leave_alone = world.spec.recovery_policy == "None"
    for pod in world.alive():
        if world.image(pod) == "bad" or (pod.status.phase == "Failed" and leave_alone):
            world.delete(pod.metadata.name)
