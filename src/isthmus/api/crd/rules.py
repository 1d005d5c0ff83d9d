"""The cross-field rules of ModelServing as CEL (MS-12 to MS-20, and their better forms in MS-4xx).

crd/modelserving.py hangs them on its schema; api/validation.py says the same in Python for objects that got
past an older CRD, and tests hold the two together on a real API server.

Rules of the whole object are checked by every write, that of /status and /scale included. They therefore let
pass what makes nothing worse: an object whose name is too long already can still be scaled down, and have its
status written. Rules of the spec need no such care, since the server only warns about a part that a write
leaves as it was. What they read is guarded with has(), even where the schema requires it, for the same
reason.
"""

from __future__ import annotations

from typing import Final

from isthmus.api import labels
from isthmus.api.crd.cel import digits, said, said_of_each
from isthmus.api.crd.schema import Schema, rule
from isthmus.api.modelserving import MAX_ROLES
from isthmus.api.names import LABEL_LIMIT
from isthmus.api.percent import PATTERN

DNS_LABEL: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_DNS_WORDS: Final = (
    "must be a DNS-1035 label: lower case letters, digits and -, starting with a letter and ending with a "
    "letter or a digit"
)


def _name(role: str) -> str:
    return f"{role}.name"


def _replicas(role: str) -> str:
    return f"{role}.replicas"


def _workers(role: str) -> str:
    return f"{role}.workerReplicas"


def _suffix(serving: str, role: str) -> str:
    """CEL: characters that pod names of this role add to metadata.name: four hyphens, a role, three
    counts."""
    counts = (f"{serving}.spec.replicas", _replicas(role), _workers(role))
    return f"(4 + size({_name(role)}) + " + " + ".join(digits(count) for count in counts) + ")"


def _fits(role: str) -> str:
    return f"size(self.metadata.name) + {_suffix('self', role)} <= {LABEL_LIMIT}"


def _no_worse(role: str) -> str:
    """CEL: some role of the old object had names as long. By index, since the length of a list inside an
    optional counts as unbounded."""
    roles = "oldSelf.value().spec.template.roles"
    indices = ", ".join(map(str, range(MAX_ROLES)))
    old = _suffix("oldSelf.value()", f"{roles}[i]")
    return f"[{indices}].exists(i, i < size({roles}) && {_suffix('self', role)} <= {old})"


# Only /status can change observedGeneration, and it can change nothing but the status. Where this holds, CEL
# also forgives what goes wrong in the rest of the rule, as with a spec of the wrong types that an old CRD let
# in. (Whole statuses cannot be compared: two equal lists of conditions are unequal to the API server.)
_GENERATION: Final = "status.observedGeneration"
_STATUS_WRITE: Final = f"""(oldSelf.hasValue() && has(self.status) && has(self.{_GENERATION})
    && (!has(oldSelf.value().status) || !has(oldSelf.value().{_GENERATION})
    || self.{_GENERATION} != oldSelf.value().{_GENERATION}))"""

NAME: Final[tuple[Schema, ...]] = (
    rule(
        f"oldSelf.hasValue() || self.metadata.name.matches('{DNS_LABEL}')",
        message=f"metadata.name {_DNS_WORDS}, since Services are named after it",
        path=".metadata.name",
        optional_old=True,
    ),
    rule(
        f"""{_STATUS_WRITE} || !has(self.spec) || !has(self.spec.template)
            || self.spec.template.roles.all(r, {_fits("r")} || (oldSelf.hasValue() && {_no_worse("r")}))""",
        message=f"metadata.name is too long: pods are named after it in at most {LABEL_LIMIT} characters",
        explain=said(
            "metadata.name has %d characters; its pods are named <name>-<group>-<role>-<replica>-<worker> in "
            f"at most {LABEL_LIMIT} characters, so that it may have at most{'%s' * MAX_ROLES}",
            "size(self.metadata.name)",
            *said_of_each(
                " %d (before -%d-%s-%d-%d)",
                "self.spec.template.roles",
                MAX_ROLES,
                lambda role: f"!({_fits(role)})",
                lambda role: f"{LABEL_LIMIT} - {_suffix('self', role)}",
                lambda _: "self.spec.replicas",
                _name,
                _replicas,
                _workers,
            ),
        ),
        path=".metadata.name",
        optional_old=True,
    ),
)

PERCENT: Final = rule(
    f"type(self) == int ? self >= 0 : self.matches('{PATTERN}')",
    message="must be an integer of 0 or more, or a percentage from 0% to 100% such as 25%",
    explain=said(
        "must be an integer of 0 or more, or a percentage from 0%% to 100%% such as 25%%; is %s", "self"
    ),
)


def _resolves(value: str, total: str, *, most: bool) -> str:
    """CEL: `value` of `total`, rounded down, is at least 1 (and at most `total`); bad text is left to
    PERCENT."""
    upper = f" && {value} <= {total}" if most else ""
    return (
        rf"(type({value}) == int ? {value} != 0{upper}"
        rf" : !{value}.matches(r'^\d+%$') || int({value}.replace('%', '')) * {total} >= 100)"
    )


_ROLLING: Final = "has(self.rolloutStrategy) && self.rolloutStrategy.type == 'RoleRollingUpdate'"
_CONFIGURED: Final = "has(self.rolloutStrategy) && has(self.rolloutStrategy.rollingUpdateConfiguration)"
_GROUP_MAX: Final = "self.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable"
_OLD_GROUP_MAX: Final = "oldSelf.?rolloutStrategy.?rollingUpdateConfiguration.?maxUnavailable"
_ROLES: Final = "self.template.roles"


def _role_max(role: str) -> str:
    return f"{role}.maxUnavailable"


def _role_max_ok(role: str) -> str:
    resolves = _resolves(_role_max(role), _replicas(role), most=True)
    return f"({_replicas(role)} == 0 || !has({_role_max(role)}) || {resolves})"


SPEC: Final[tuple[Schema, ...]] = (
    rule(
        f"self.recoveryPolicy != 'ServingGroupRecreate' || !({_ROLLING})",
        message="recoveryPolicy ServingGroupRecreate cannot go with rolloutStrategy.type RoleRollingUpdate: "
        "one replaces whole groups, the other roles of a living group",
        path=".rolloutStrategy.type",
    ),
    rule(
        f"""!({_CONFIGURED}) || {_ROLLING} || {_resolves(_GROUP_MAX, "self.replicas", most=False)}
            || {_OLD_GROUP_MAX}.orValue(-1) == {_GROUP_MAX}""",
        message="maxUnavailable must come to at least 1 group of spec.replicas, rounded down",
        explain=said(
            "maxUnavailable %s of %d replicas comes to 0, rounded down; it must come to at least 1, or no "
            "rollout could go on",
            _GROUP_MAX,
            "self.replicas",
        ),
        path=".rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
        optional_old=True,
    ),
    rule(
        f"{_ROLLING} || !has(self.template) || {_ROLES}.all(r, !has(r.partition))",
        message="the partition of a role needs rolloutStrategy.type RoleRollingUpdate",
        explain=said(
            "the partition of a role needs rolloutStrategy.type RoleRollingUpdate; set on" + "%s" * MAX_ROLES,
            *said_of_each(" %s", _ROLES, MAX_ROLES, lambda role: f"has({role}.partition)", _name),
        ),
        path=".template.roles",
    ),
    rule(
        f"!({_ROLLING}) || !has(self.template) || {_ROLES}.all(r, {_role_max_ok('r')})",
        message="with RoleRollingUpdate, maxUnavailable of a role must come to 1 to all of its replicas",
        explain=said(
            "with RoleRollingUpdate, maxUnavailable of a role must come to 1 to all of its replicas, rounded "
            "down; not so for" + "%s" * MAX_ROLES,
            *said_of_each(
                " %s (%s of %d)",
                _ROLES,
                MAX_ROLES,
                lambda role: f"!{_role_max_ok(role)}",
                _name,
                _role_max,
                _replicas,
            ),
        ),
        path=".template.roles",
    ),
)

ROLLOUT: Final = rule(
    "self.type != 'RoleRollingUpdate' || !has(self.rollingUpdateConfiguration)",
    message="rollingUpdateConfiguration belongs to ServingGroupRollingUpdate; with RoleRollingUpdate, set "
    "maxUnavailable and partition on the roles",
    path=".rollingUpdateConfiguration",
)

_MINIMUMS: Final = "self.gangPolicy.minRoleReplicas"
_NO_MINIMUMS: Final = f"!has(self.gangPolicy) || !has({_MINIMUMS})"


def _minimum(role: str) -> str:
    return f"{_MINIMUMS}[{_name(role)}]"


def _too_few(role: str) -> str:
    return f"({_name(role)} in {_MINIMUMS} && {_minimum(role)} > {_replicas(role)})"


TEMPLATE: Final[tuple[Schema, ...]] = (
    rule(
        "!has(oldSelf.gangPolicy) || has(self.gangPolicy)",
        message="gangPolicy cannot be removed once it is set; an empty one asks for whole groups",
    ),
    rule(
        f"{_NO_MINIMUMS} || {_MINIMUMS}.all(k, self.roles.exists(r, r.name == k))",
        message="minRoleReplicas names a role that does not exist",
        explain=said(
            "minRoleReplicas names a role that does not exist; there are" + "%s" * MAX_ROLES,
            *said_of_each(" %s", "self.roles", MAX_ROLES, lambda _: "true", _name),
        ),
        path=".gangPolicy.minRoleReplicas",
    ),
    rule(
        f"""{_NO_MINIMUMS} || oldSelf.?gangPolicy.?minRoleReplicas.hasValue()
            || !self.roles.exists(r, {_too_few("r")})""",
        message="minRoleReplicas asks for more replicas than the role has",
        explain=said(
            "minRoleReplicas asks for more replicas than the role has:" + "%s" * MAX_ROLES,
            *said_of_each(" %s (%d of %d)", "self.roles", MAX_ROLES, _too_few, _name, _minimum, _replicas),
        ),
        path=".gangPolicy.minRoleReplicas",
        optional_old=True,
    ),
)

GANG: Final = rule(
    "!has(oldSelf.minRoleReplicas) || !has(self.minRoleReplicas)"
    " || self.minRoleReplicas == oldSelf.minRoleReplicas",
    message="minRoleReplicas cannot be changed; remove it, then set it anew",
    path=".minRoleReplicas",
)


def _twice(role: str) -> str:
    return f"!self.exists_one(q, q.name == {_name(role)})"


ROLES: Final = rule(
    f"!self.exists(r, {_twice('r')})",
    message="role names must be unique",
    explain=said(
        "role names must be unique; these are not:" + "%s" * MAX_ROLES,
        *said_of_each(" %s", "self", MAX_ROLES, _twice, _name),
    ),
)

ROLE_NAME: Final = rule(
    f"self.matches('{DNS_LABEL}')",
    message=_DNS_WORDS,
    explain=said(f"{_DNS_WORDS}; is %s", "self"),
)

ROLE: Final[tuple[Schema, ...]] = (
    rule(
        "self.workerReplicas <= 0 || has(self.workerTemplate)",
        message="workerTemplate is required when workerReplicas is more than 0",
        path=".workerTemplate",
        reason="FieldValueRequired",
    ),
    rule(
        """self.workerReplicas <= 0 || !has(self.workerTemplate)
            || (has(self.workerTemplate.spec) && size(self.workerTemplate.spec.containers) > 0)""",
        message="workerTemplate needs a spec with at least one container when workerReplicas is more than 0",
        path=".workerTemplate",
    ),
)


def _taken(key: str) -> str:
    return f"'{key}' in self.labels"


LABELS: Final = rule(
    f"!has(self.labels) || !({' || '.join(map(_taken, labels.ALL))})",
    message="labels that the controller sets cannot be set in a template",
    explain=said(
        "labels that the controller sets cannot be set in a template:" + "%s" * len(labels.ALL),
        *(f"({_taken(key)} ? ' {key}' : '')" for key in labels.ALL),
    ),
    path=".labels",
)
