"""The CustomResourceDefinition of ModelServing (MS-1 to MS-9), with upstream's fields, defaults and bounds.

`definition()` composes it from the words of schema.py, the rules of rules.py and the embedded PodSpec;
`isthmus crds`, the chart and docs/reference/modelserving.md are made of it. The decoded types of
api/modelserving.py have the same fields and defaults, which a test holds. Bounds that upstream leaves to its
webhook are in the schema here, so that they hold without one.
"""

from __future__ import annotations

from typing import Final

from isthmus.api import labels
from isthmus.api.crd import rules
from isthmus.api.crd.podspec import pod_spec
from isthmus.api.crd.schema import (
    Schema,
    anything,
    array,
    choice,
    column,
    count,
    crd,
    int_or_percent,
    mapping,
    root,
    ruled,
    struct,
    text,
    version,
)
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MAX_ROLE_NAME, MAX_ROLES, MODEL_SERVINGS, PLUGIN_NAMES

GROUP: Final = MODEL_SERVINGS.group


def definition() -> Raw:
    """The CRD as a new dictionary, ready to be created or applied."""
    served = version(
        MODEL_SERVINGS.version,
        schema(),
        column("Replicas", "integer", ".status.replicas"),
        column("Available", "integer", ".status.availableReplicas"),
        column("Updated", "integer", ".status.updatedReplicas"),
        column("Age", "date", ".metadata.creationTimestamp"),
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        },
    )
    return crd(MODEL_SERVINGS, served)


def schema() -> Schema:
    """The OpenAPI schema of the whole object."""
    whole = root(
        "ModelServing runs a model as groups of pods: each ServingGroup has the same roles, such as prefill "
        "and decode, and each replica of a role is one entry pod and its workers.",
        _spec(),
        _status(),
    )
    return ruled(whole, *rules.NAME)


def _spec() -> Schema:
    fields = {
        "replicas": count("How many ServingGroups there are. The scale subresource sets it.", default=1),
        "schedulerName": text(
            "Scheduler of every pod; it replaces the pod templates' own. With `volcano`, groups are "
            "gang scheduled where the PodGroup API is installed.",
            default="volcano",
        ),
        "plugins": array(
            "Built-in plugins that change pods before they are created, in this order.", _plugin()
        ),
        "template": ruled(_template(), *rules.TEMPLATE),
        "rolloutStrategy": ruled(_rollout(), rules.ROLLOUT),
        "recoveryPolicy": choice(
            "What is replaced when a pod fails or vanishes: its whole group, its role replica (entry and "
            "workers), or with None only what is gone.",
            "ServingGroupRecreate",
            "RoleRecreate",
            "None",
            default="RoleRecreate",
        ),
    }
    return ruled(struct("What is wanted.", fields, required=("template",)), *rules.SPEC)


def _plugin() -> Schema:
    scope = struct(
        "Which pods the plugin changes; all where this is absent.",
        {
            "roles": array("Roles whose pods it changes; none named means all.", text("A role name.")),
            "target": choice("Which pods of a role.", "All", "Entry", "Worker", default="All"),
        },
    )
    fields = {
        "name": choice("Which plugin.", *PLUGIN_NAMES),
        "type": choice("Where the plugin comes from.", "BuiltIn", default="BuiltIn"),
        "config": anything("Settings of the plugin, in its own form."),
        "scope": scope,
    }
    return struct("A plugin and its settings.", fields, required=("name", "type"))


def _template() -> Schema:
    minimums = mapping(
        "Role name to the least replicas that must be schedulable at once; roles not named count in full. "
        "What exceeds a role's replicas later counts as all of them. Cannot be changed once set.",
        count("Replicas of the role."),
        most=MAX_ROLES,
    )
    gang = struct("How much of a group must be schedulable at once.", {"minRoleReplicas": minimums})
    topology = struct(
        "Where pods may be placed in the network, in Volcano's terms.",
        {
            "groupPolicy": _topology("For the pods of a whole group."),
            "rolePolicy": _topology("For the pods of each role replica."),
        },
    )
    fields = {
        "restartGracePeriodSeconds": count(
            "Seconds that a restarted or unready pod has to be ready again before the recovery policy acts "
            "on it; 0 or less acts at once.",
            default=0,
            least=None,
            bits=64,
        ),
        "gangPolicy": ruled(gang, rules.GANG),
        "networkTopology": topology,
        "roles": ruled(array("The roles of a group.", _role(), least=1, most=MAX_ROLES), rules.ROLES),
    }
    return struct("What each ServingGroup is made of.", fields, required=("roles",))


def _topology(description: str) -> Schema:
    fields = {
        "mode": choice(
            "Whether placement outside the tier is refused or only avoided.", "hard", "soft", default="hard"
        ),
        "highestTierAllowed": count("Highest tier of HyperNodes that the pods may span."),
        "highestTierName": text("The same tier by its name.", most=253),
    }
    return struct(description, fields)


def _role() -> Schema:
    name = text(
        f"Name of the role, at most {MAX_ROLE_NAME} characters; part of its pods' names.", most=MAX_ROLE_NAME
    )
    fields = {
        "name": ruled(name, rules.ROLE_NAME),
        "replicas": count("How many replicas of the role each group has.", default=1),
        "entryTemplate": _pod_template("The entry pod of each replica.", containers=1, required=("spec",)),
        "workerReplicas": count("How many worker pods each replica has beside its entry pod."),
        "workerTemplate": _pod_template(
            "The worker pods. A headless Service is made where this is present.", containers=0
        ),
        "maxUnavailable": ruled(
            int_or_percent(
                "With RoleRollingUpdate: replicas of this role per group that may be down at once during a "
                "rollout, as a number or a percentage (rounded down).",
                default=1,
            ),
            rules.PERCENT,
        ),
        "partition": ruled(
            int_or_percent(
                "With RoleRollingUpdate: replicas of this role below this ordinal keep their revision."
            ),
            rules.PERCENT,
        ),
    }
    role = struct("A role.", fields, required=("name", "entryTemplate", "workerReplicas"))
    return ruled(role, *rules.ROLE)


def _pod_template(description: str, *, containers: int, required: tuple[str, ...] = ()) -> Schema:
    value = {"type": "string", "maxLength": 63, "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
    metadata = struct(
        "Labels and annotations of the pods.",
        {
            "labels": mapping(
                "Labels; those of modelserving.volcano.sh that the controller sets are refused.", value
            ),
            "annotations": mapping("Annotations.", {"type": "string"}),
        },
    )
    fields = {
        "metadata": ruled(metadata, rules.LABELS),
        "spec": pod_spec(
            "The pod, as in a core/v1 Pod; see the Kubernetes documentation.",
            containers=containers,
            reserved=labels.ENV,
        ),
    }
    return struct(description, fields, required=required)


def _rollout() -> Schema:
    configuration = struct(
        "Bounds on ServingGroupRollingUpdate.",
        {
            "maxUnavailable": ruled(
                int_or_percent(
                    "Groups that may be down at once during a rollout, as a number or a percentage of "
                    "spec.replicas (rounded down).",
                    default=1,
                ),
                rules.PERCENT,
            ),
            "partition": ruled(
                int_or_percent("Groups below this ordinal keep their revision, as a number or a percentage."),
                rules.PERCENT,
            ),
        },
    )
    fields = {
        "type": choice(
            "What a rollout replaces: whole groups, or role replicas inside living groups.",
            "ServingGroupRollingUpdate",
            "RoleRollingUpdate",
            default="ServingGroupRollingUpdate",
        ),
        "rollingUpdateConfiguration": configuration,
    }
    return struct("How a changed template reaches running pods.", fields, required=("type",))


def _status() -> Schema:
    fields = {
        "observedGeneration": count("metadata.generation that the rest describes.", least=None, bits=64),
        "replicas": count("Groups that exist.", least=None),
        "currentReplicas": count("Groups of the current revision.", least=None),
        "updatedReplicas": count("Groups of the update revision.", least=None),
        "availableReplicas": count("Groups of which every role is complete and ready.", least=None),
        "currentRevision": text("Revision that a rollout comes from."),
        "updateRevision": text("Revision of the present spec."),
        "labelSelector": text("Selector of one pod per group, for autoscalers."),
        "conditions": array("Available, Progressing and UpdateInProgress.", _condition()),
        "recoveries": array(
            "The last recovery of each group that failed; where one fails again and again, the next waits.",
            _recovery(),
        ),
    }
    return struct("What is; the controller writes it.", fields)


def _recovery() -> Schema:
    fields = {
        "group": text("The ServingGroup."),
        "count": count("Recoveries in a row.", least=None),
        "time": text("When it was last recovered.") | {"format": "date-time"},
        "revision": text("Revision of the pod that had failed."),
        "pod": text("The pod that had failed."),
        "podUid": text("Its UID."),
        "container": text("Its container that had failed, if one had."),
        "reason": text("Why, in one word, such as OOMKilled or Evicted."),
        "message": text("What the container or the node said."),
    }
    return struct("One recovery.", fields, required=("group",))


def _condition() -> Schema:
    fields = {
        "type": text("Type of the condition.", most=316)
        | {
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        },
        "status": choice("Whether it holds.", "True", "False", "Unknown"),
        "observedGeneration": count("metadata.generation that it was computed from.", bits=64),
        "lastTransitionTime": text("When status last changed.") | {"format": "date-time"},
        "reason": text("Why, in one word.", most=1024)
        | {"minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": text("Why, for people.", most=32768),
    }
    required = ("type", "status", "lastTransitionTime", "reason", "message")
    return struct("One condition.", fields, required=required)
