"""Gang scheduling: the spec, and what the cluster offers -> the PodGroup of each group (MS-90 to MS-99).

Called once per pass by reconcile.py (`consider`), then by roles.py for each group that stays or is begun, and
by groups.py for those of which nothing else is left. A PodGroup always says what the present spec asks for,
whatever revision its group has (MS-96). Who asks for no gang needs no PodGroup API: where it is missing, or
nobody knows what is there, pods are made without. INV-15: no pod that names a PodGroup is made before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from isthmus.api import labels as keys
from isthmus.api.modelserving import ModelServing, Spec, TopologyPolicy
from isthmus.api.podgroups import POD_GROUPS, PodGroupSpec
from isthmus.api.quantity import parse, total
from isthmus.modelserving.plan.draft import MAX_PODS_PER_PASS, Draft
from isthmus.modelserving.plan.model import (
    Desired,
    Group,
    Offer,
    RepairPodGroup,
    RoleTarget,
    RoleTemplate,
)

VOLCANO: Final = "volcano"
"""The one scheduler that knows PodGroups (MS-90)."""
LEADER_WORKER_SET: Final = "LeaderWorkerSet"

_TOPOLOGY: Final = ("mode", "highestTierAllowed", "highestTierName")
FIELDS: Final = (
    "minMember",
    "minResources",
    "queue",
    "networkTopology",
    *(f"networkTopology.{field}" for field in _TOPOLOGY),
    "subGroupPolicy",
    *(f"subGroupPolicy.{field}" for field in ("name", "labelSelector", "labelSelector.matchLabels")),
    *(f"subGroupPolicy.{field}" for field in ("matchLabelKeys", "subGroupSize", "minSubGroups")),
    "subGroupPolicy.networkTopology",
    *(f"subGroupPolicy.networkTopology.{field}" for field in _TOPOLOGY),
)
"""Every field of a PodGroup's spec that is ever written, as Offer.fields names them."""
FULL_OFFER: Final = Offer(served=True, fields=dict.fromkeys(FIELDS))
"""What Volcano of 1.14 and later has."""


def in_cluster(desired: Desired, serving: ModelServing, offer: Offer) -> Desired:
    """What `serving` asks for, together with what its metadata and the cluster say about it."""
    owner = serving.metadata.controller()
    return replace(
        desired,
        offer=offer,
        queue=serving.metadata.annotations.get(keys.QUEUE, ""),
        leader_worker_set=owner.name if owner is not None and owner.kind == LEADER_WORKER_SET else "",
    )


def is_ganged(spec: Spec) -> bool:
    """Whether groups are gang scheduled where the API is there (MS-90)."""
    return spec.scheduler_name == VOLCANO


def asks(spec: Spec) -> bool:
    """Whether gang scheduling was asked for in so many words, and not only by the default scheduler."""
    template = spec.template
    topology = template.network_topology
    placed = topology is not None and (topology.group_policy or topology.role_policy) is not None
    return is_ganged(spec) and (template.gang_policy is not None or placed)


def consider(desired: Desired, draft: Draft) -> None:
    """Settle once per pass what each PodGroup should say, or what to tell where nothing can be done."""
    served = desired.offer.served
    if not is_ganged(desired.spec):
        return
    if served:
        draft.pod_group = pod_group_spec(desired)
    elif asks(desired.spec):
        api = f"{POD_GROUPS.name} at {POD_GROUPS.api_version}"
        if served is None:
            draft.may_create = False
            text = f"gang scheduling was asked for, and {api} cannot be listed yet: no pods are made"
            draft.problem("PodGroupsUnknown", text)
        else:
            text = f"gang scheduling was asked for, and the cluster does not serve {api}"
            draft.problem("PodGroupApiMissing", f"{text}: pods are made without it; install Volcano")


def plan_pod_group(group: Group, target: Mapping[str, RoleTarget], desired: Desired, draft: Draft) -> None:
    """Add to `draft` what makes the PodGroup of `group`, which may hold nothing yet, what it should be."""
    wanted = draft.pod_group
    if wanted is None:
        if group.pod_group is not None and not is_ganged(desired.spec):
            draft.delete_pod_group(group.pod_group, f"the scheduler is {desired.spec.scheduler_name} now")
        return
    if group.pod_group is not None:
        if not is_same(group.pod_group.spec, wanted):
            draft.actions.append(RepairPodGroup(group.pod_group, wanted))
            draft.because(f"bring PodGroup {group.name} up to date")
        draft.ganged.add(group.name)
        return
    if not any(each.count for each in target.values()):
        return
    obstacle = group.taken.get(group.name + "/podgroup")
    if obstacle is not None:
        draft.because(f"PodGroup {group.name} {obstacle.why}")
        if obstacle.lasting:
            draft.problem("NameTaken", f"PodGroup {group.name} {obstacle.why}")
        if asks(desired.spec) or not obstacle.lasting:
            draft.held.add(group.name)
        return
    if draft.pod_groups >= MAX_PODS_PER_PASS:
        draft.held.add(group.name)
    elif draft.may_create and not draft.full:
        draft.create_pod_group(group.name, wanted)
        draft.ganged.add(group.name)


def sweep_pod_groups(groups: Iterable[Group], desired: Desired, draft: Draft) -> None:
    """Remove PodGroups that stand for nothing: of `groups`, which have no pods, those that get none. One that
    waits for its group to be begun is kept right."""
    empty = not any(template.replicas > 0 for template in desired.revision.roles.values())
    for group in groups:
        unwanted = group.ordinal >= desired.spec.replicas or empty
        if group.pod_group is None:
            continue
        if unwanted:
            draft.delete_pod_group(group.pod_group, "it has no pods")
        elif draft.pod_group is not None and group.name not in draft.ganged:
            plan_pod_group(group, {}, desired, draft)


def pod_group_spec(desired: Desired) -> PodGroupSpec:
    """What each PodGroup of a ModelServing should say, as far as the cluster's version of the API keeps it
    (MS-92 to MS-95)."""
    roles = list(desired.revision.roles.values())
    minimums = {role.name: _minimum(role, desired.spec) for role in roles}
    topology = desired.spec.template.network_topology
    raw: dict[str, Any] = {
        "minMember": sum(role.size * minimums[role.name] for role in roles),
        "minResources": _requests(roles, minimums),
        "subGroupPolicy": [_sub_group(desired, role, minimums[role.name]) for role in roles],
    }
    if desired.queue:
        raw["queue"] = desired.queue
    if topology is not None and topology.group_policy is not None:
        raw["networkTopology"] = _topology(topology.group_policy)
    return msgspec.convert(_shaped(raw, desired.offer.fields), PodGroupSpec)


def is_same(stored: PodGroupSpec, wanted: PodGroupSpec) -> bool:
    """Whether a PodGroup says what it should, however its quantities are written (MS-423)."""
    if stored == wanted:
        return True
    same_amounts = stored.min_resources.keys() == wanted.min_resources.keys() and all(
        _is_same_amount(amount, wanted.min_resources[name]) for name, amount in stored.min_resources.items()
    )
    return same_amounts and _but_amounts(stored) == _but_amounts(wanted)


def _but_amounts(spec: PodGroupSpec) -> PodGroupSpec:
    return replace(spec, min_resources={}, queue=spec.queue or "default")


def _is_same_amount(stored: str | float, wanted: str | float) -> bool:
    try:
        return parse(stored) == parse(wanted)
    except ValueError:
        return False


def _minimum(role: RoleTemplate, spec: Spec) -> int:
    """Replicas of a role that must be schedulable at once: never more than there are (MS-92, MS-426)."""
    replicas = max(0, role.replicas)
    policy = spec.template.gang_policy
    least = policy.min_role_replicas.get(role.name, replicas) if policy is not None else replicas
    return max(0, min(least, replicas))


def _requests(roles: Iterable[RoleTemplate], minimums: Mapping[str, int]) -> dict[str, str]:
    """What the counted pods request together (MS-93). What is no quantity is left out: no pod can be made of
    it, and that is told where one is."""
    terms: dict[str, list[tuple[str | float, int]]] = {}
    for role in roles:
        for index, pods in ((0, 1), (1, role.workers)):
            for resource, amount in _asked(role.pod_template(index)):
                terms.setdefault(resource, []).append((amount, pods * minimums[role.name]))
    sums = {}
    for resource, amounts in terms.items():
        if any(times for _, times in amounts):
            try:
                sums[resource] = total(amounts)
            except ValueError:
                continue
    return sums


def _asked(raw_template: dict[str, Any]) -> Iterator[tuple[str, str | float]]:
    for raw_container in (raw_template.get("spec") or {}).get("containers") or []:
        yield from ((raw_container.get("resources") or {}).get("requests") or {}).items()


def _sub_group(desired: Desired, role: RoleTemplate, minimum: int) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "name": role.name,
        "labelSelector": {"matchLabels": {keys.NAME: desired.name, keys.ROLE: role.name}},
        "matchLabelKeys": [keys.ROLE_ID],
        "subGroupSize": role.size,
        "minSubGroups": minimum,
    }
    topology = desired.spec.template.network_topology
    if topology is not None and topology.role_policy is not None:
        raw["networkTopology"] = _topology(topology.role_policy)
    return raw


def _topology(policy: TopologyPolicy) -> dict[str, Any]:
    given = (policy.mode, policy.highest_tier_allowed, policy.highest_tier_name)
    return {field: value for field, value in zip(_TOPOLOGY, given, strict=True) if value is not None}


def _shaped(raw: dict[str, Any], fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The part of `raw` that the API keeps, with the defaults that it fills in; else what is stored would
    never be what is wanted."""
    kept = {}
    for path, default in fields.items():
        parent, _, field = path.rpartition(".")
        if parent == prefix and (field in raw or default is not None):
            value = raw.get(field, default)
            if isinstance(value, dict) and any(each.startswith(path + ".") for each in fields):
                value = _shaped(value, fields, path)
            elif isinstance(value, list):
                value = [_shaped(each, fields, path) if isinstance(each, dict) else each for each in value]
            kept[field] = value
    return kept
