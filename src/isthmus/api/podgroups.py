"""Volcano's PodGroup, cut down to what the planner compares with what it should be (MS-91 to MS-95).

kube/ decodes into these types where the API is served; the store keeps them with the group of the same name.
Only one version has ever been served; others would be added to POD_GROUP_VERSIONS, the best one first.
Nothing here has a closed choice: a value that a later Volcano adds must not stop a list from being read.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.meta import Frozen, Object, Resource
from isthmus.api.pods import ServingMeta


class Topology(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """spec.networkTopology, of a whole PodGroup or of each sub-group."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class LabelSelector(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """What selects the pods of a sub-group."""

    match_labels: dict[str, str] = {}


class SubGroup(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """spec.subGroupPolicy[]: the replicas of one role, each of `sub_group_size` pods."""

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    network_topology: Topology | None = None


class PodGroupSpec(Frozen, frozen=True, kw_only=True):
    """What of a PodGroup Isthmus writes."""

    min_member: int = 0
    min_resources: dict[str, str | int | float] = {}
    queue: str = ""
    network_topology: Topology | None = None
    sub_group_policy: tuple[SubGroup, ...] = ()


class PodGroup(Object, frozen=True, kw_only=True):
    """A PodGroup with the label modelserving.volcano.sh/group-name."""

    metadata: ServingMeta
    spec: PodGroupSpec = PodGroupSpec()


POD_GROUPS: Final = Resource(
    group="scheduling.volcano.sh", version="v1beta1", plural="podgroups", kind="PodGroup", type=PodGroup
)
POD_GROUP_VERSIONS: Final = (POD_GROUPS,)
