"""ValidatingAdmissionPolicies beside the CRDs: what takes more than one object's schema, without a webhook.

`isthmus crds --admission` prints them. Two of them, each with its binding:

- `modelserving-objects` refuses to move pods, Services and PodGroups in or out of a ModelServing by their
  labels. A pod without its labels still holds its name, so that its replica could not be made again.
- `modelserving-advice` warns about what is allowed and rarely meant.

Nothing relies on them: the controller is as safe without. They name no user, so that an operator under
another service account is not locked out.
"""

from __future__ import annotations

from typing import Final

from isthmus.api import labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS

OBJECTS: Final = "modelserving-objects.isthmus.dev"
ADVICE: Final = "modelserving-advice.isthmus.dev"
_API: Final = "admissionregistration.k8s.io/v1"
_MANAGED: Final = {"matchExpressions": [{"key": labels.GROUP_NAME, "operator": "Exists"}]}


def policies() -> list[Raw]:
    """All policies and bindings, ready to be applied, as new dictionaries."""
    return [
        _policy(OBJECTS, [_rule("", "v1", "pods", "services"), _pod_groups()], _OBJECT_RULES, _MANAGED),
        _binding(OBJECTS, "Deny"),
        _policy(
            ADVICE, [_rule(MODEL_SERVINGS.group, MODEL_SERVINGS.version, MODEL_SERVINGS.plural)], _ADVICE
        ),
        _binding(ADVICE, "Warn"),
    ]


def _policy(name: str, rules: list[Raw], validations: list[Raw], selector: Raw | None = None) -> Raw:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules,
                **({"objectSelector": selector} if selector is not None else {}),
            },
            "validations": validations,
        },
    }


def _binding(name: str, action: str) -> Raw:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }


def _rule(group: str, version: str, *resources: str) -> Raw:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
    }


def _pod_groups() -> Raw:
    return _rule(POD_GROUPS.group, POD_GROUPS.version, POD_GROUPS.plural)


def _validation(expression: str, message: str, explain: str = "") -> Raw:
    validation = {"expression": " ".join(expression.split()), "message": message}
    return validation | ({"messageExpression": " ".join(explain.split())} if explain else {})


_KEYS: Final = "[" + ", ".join(f"'{key}'" for key in labels.ALL) + "]"
_NAMED: Final = f"object.metadata.?labels[?'{labels.NAME}'].orValue('')"

_OBJECT_RULES: Final[list[Raw]] = [
    _validation(
        f"""oldObject == null || {_KEYS}.all(key,
            object.metadata.?labels[?key] == oldObject.metadata.?labels[?key])""",
        "labels by which a ModelServing knows its objects cannot be changed; delete the object instead",
        f"""'labels by which ModelServing ' + oldObject.metadata.?labels[?'{labels.NAME}'].orValue({_NAMED})
            + ' knows its objects cannot be changed; delete the object instead'""",
    ),
    _validation(
        f"""oldObject != null || object.metadata.?ownerReferences.orValue([]).exists(owner,
            owner.?controller.orValue(false) && owner.kind == '{MODEL_SERVINGS.kind}'
            && owner.apiVersion.startsWith('{MODEL_SERVINGS.group}/') && owner.name == {_NAMED})""",
        f"the labels of {labels.PREFIX} are for objects that a ModelServing owns",
        f"""'the labels of {labels.PREFIX} are for objects that a ModelServing owns; this one is not by '
            + ({_NAMED} == '' ? 'any' : 'ModelServing ' + {_NAMED})""",
    ),
]

_SPEC: Final = "object.spec"
_ROLES: Final = f"{_SPEC}.template.roles"
_LEAST: Final = f"{_SPEC}.template.?gangPolicy.?minRoleReplicas.orValue({{}})"
_BY_ROLE: Final = f"{_SPEC}.?rolloutStrategy.?type.orValue('') == 'RoleRollingUpdate'"
_GANGED: Final = f"{_SPEC}.schedulerName == 'volcano'"


def _of(roles: str, text: str) -> str:
    """CEL: `text` with the names of those roles."""
    return f"'{text}: ' + {_ROLES}.filter(r, {roles}).map(r, r.name).join(', ')"


_TOO_FEW: Final = f"r.name in {_LEAST} && {_LEAST}[r.name] > r.replicas"
_ALONE: Final = "r.replicas == 1 && r.?partition.orValue(0) == 0"

_ADVICE: Final[list[Raw]] = [
    _validation(
        f"!{_ROLES}.exists(r, {_TOO_FEW})",
        "gangPolicy.minRoleReplicas is more than a role has replicas, and counts as all of them",
        _of(
            _TOO_FEW,
            "gangPolicy.minRoleReplicas is more than these roles have replicas, and counts as all of them",
        ),
    ),
    _validation(
        f"{_GANGED} || !has({_SPEC}.template.gangPolicy)",
        "gangPolicy has no effect: only schedulerName volcano knows gangs",
    ),
    _validation(
        f"{_GANGED} || !has({_SPEC}.template.networkTopology)",
        "networkTopology has no effect: only schedulerName volcano knows it",
    ),
    _validation(
        f"!({_BY_ROLE}) || !{_ROLES}.exists(r, {_ALONE})",
        "with RoleRollingUpdate, a role of one replica is down while it is replaced, in all groups at once",
        _of(
            _ALONE,
            "with RoleRollingUpdate, these roles of one replica are down while they are replaced, in all "
            "groups at once",
        ),
    ),
]
