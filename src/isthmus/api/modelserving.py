"""ModelServing as Isthmus reads it: spec and status, decoded, frozen, with pod templates left as bytes.

kube/client.py and kube/watch.py decode into ModelServing; the store and the planner read it. Decoding never
raises because of one object's spec or status, whatever an old CRD or a direct write let into etcd: a spec
that does not fit the types is an `Unreadable` with the reason, which the controller reports in that object's
status, and a status that does not fit is an empty one. Bounds and cross-field rules are not checked here:
the CRD's schema refuses them at admission (api/crd), and api/validation.py finds what got past it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from isthmus.api.decode import OptionalRaw, Unreadable, own_raw, settle_parts
from isthmus.api.meta import Frozen, Object, Resource

RolloutType = Literal["ServingGroupRollingUpdate", "RoleRollingUpdate"]
RecoveryPolicy = Literal["ServingGroupRecreate", "RoleRecreate", "None"]
MAX_ROLES: Final = 4
"""Roles of one ModelServing. The bound also keeps the CRD's CEL rules cheap."""
MAX_ROLE_NAME: Final = 12
"""Characters of a role name."""
PLUGIN_NAMES: Final = ("demo-pod-tweaks", "lws-standard-labels")
"""The plugins that there are (MS-109)."""
IntOrPercent = int | str
"""A count, or text such as `25%`: see `isthmus.api.percent`."""


class PluginScope(Frozen, frozen=True, kw_only=True):
    """spec.plugins[].scope: the roles (none named: all) and the pods of a role that a plugin works on."""

    roles: tuple[str, ...] = ()
    target: Literal["All", "Entry", "Worker"] = "All"


class Plugin(Frozen, frozen=True, kw_only=True):
    """spec.plugins[]. `config` is any JSON, kept as bytes."""

    name: str
    type: str = "BuiltIn"
    config: OptionalRaw = None
    scope: PluginScope | None = None

    def __post_init__(self) -> None:
        own_raw(self, "config")


class GangPolicy(Frozen, frozen=True, kw_only=True):
    """spec.template.gangPolicy: role name to the least replicas that must be schedulable at once."""

    min_role_replicas: dict[str, int] = {}


class TopologyPolicy(Frozen, frozen=True, kw_only=True):
    """One network topology constraint, in Volcano's words."""

    mode: Literal["hard", "soft"] = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class NetworkTopology(Frozen, frozen=True, kw_only=True):
    """spec.template.networkTopology: of a whole group, and of each role replica."""

    group_policy: TopologyPolicy | None = None
    role_policy: TopologyPolicy | None = None


class Role(Frozen, frozen=True, kw_only=True):
    """spec.template.roles[]. The templates are the JSON that the API server gave, byte for byte."""

    name: str
    replicas: int = 1
    entry_template: msgspec.Raw
    worker_replicas: int = 0
    worker_template: OptionalRaw = None
    max_unavailable: IntOrPercent | None = None
    partition: IntOrPercent | None = None

    def __post_init__(self) -> None:
        own_raw(self, "entry_template", "worker_template")
        if self.entry_template is None:
            raise ValueError("Expected `object`, got `null` for entryTemplate")

    @property
    def pods(self) -> int:
        """Pods of one role replica: the entry and its workers (MS-21)."""
        return 1 + self.worker_replicas


class Template(Frozen, frozen=True, kw_only=True):
    """spec.template: what each ServingGroup is made of. The grace period is in seconds."""

    restart_grace_period_seconds: int = 0
    gang_policy: GangPolicy | None = None
    network_topology: NetworkTopology | None = None
    roles: tuple[Role, ...] = ()


class RollingUpdateConfiguration(Frozen, frozen=True, kw_only=True):
    """spec.rolloutStrategy.rollingUpdateConfiguration: bounds on whole groups (MS-17)."""

    max_unavailable: IntOrPercent = 1
    partition: IntOrPercent | None = None


class RolloutStrategy(Frozen, frozen=True, kw_only=True):
    """spec.rolloutStrategy."""

    type: RolloutType = "ServingGroupRollingUpdate"
    rolling_update_configuration: RollingUpdateConfiguration | None = None


class Spec(Frozen, frozen=True, kw_only=True):
    """spec, with the CRD's defaults (MS-5)."""

    replicas: int = 1
    scheduler_name: str = "volcano"
    plugins: tuple[Plugin, ...] = ()
    template: Template
    rollout_strategy: RolloutStrategy | None = None
    recovery_policy: RecoveryPolicy = "RoleRecreate"


class Condition(Frozen, frozen=True, kw_only=True):
    """status.conditions[], as metav1.Condition. The time is RFC 3339 text in UTC."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Recovery(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """status.recoveries[]: the last recovery of a ServingGroup from a failure, how often in a row there was
    one, and what had failed. The time is RFC 3339 text in UTC."""

    group: str
    count: int = 0
    time: str = ""
    revision: str = ""
    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    reason: str = ""
    message: str = ""


class Status(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """status (MS-8, and `recoveries`). Zero and empty fields are absent on the wire."""

    observed_generation: int = 0
    replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    label_selector: str = ""
    conditions: tuple[Condition, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


_decode_spec: Final = msgspec.json.Decoder(Spec)
_decode_status: Final = msgspec.json.Decoder(Status)


class ModelServing(Object, frozen=True, kw_only=True):
    """A ModelServing. `spec` is never raw outside this class: it is a Spec, or says why it is none."""

    if TYPE_CHECKING:
        spec: Spec | Unreadable
        status: Status = Status()
    else:
        # Bytes of any shape; see settle_parts.
        spec: msgspec.Raw = msgspec.Raw(b"null")
        status: msgspec.Raw = Status()

    def __post_init__(self) -> None:
        settle_parts(self, _decode_spec, _decode_status, Status())


MODEL_SERVINGS: Final = Resource(
    group="workload.serving.volcano.sh",
    version="v1alpha1",
    plural="modelservings",
    kind="ModelServing",
    type=ModelServing,
)
