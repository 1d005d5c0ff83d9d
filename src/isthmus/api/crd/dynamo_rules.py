"""CEL rules of DynamoGraphDeployment: what could never work, with the field at fault (G-5).

crd/dynamo.py puts them on its schema. The controller says the same in status for graphs that another CRD let
in (api/dynamo/problems.py), and what no rule can see: `<Kubernetes namespace>-<name>` as a label.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.crd.schema import rule
from isthmus.api.dynamo.analysis import EPP
from isthmus.api.dynamo.analysis import TYPES as TYPES
from isthmus.api.names import LABEL_LIMIT

_LONGEST: Final = "size(self.metadata.name) + 1 + size({}) <= " + str(LABEL_LIMIT)
_OF_FORM: Final = "!has(self.spec.{0}) || self.spec.{0}.all(each, {1})"

NAME: Final = (
    rule(
        f"oldSelf.hasValue() || (size(self.metadata.name) <= {LABEL_LIMIT}"
        " && self.metadata.name.matches('^[a-z]([-a-z0-9.]*[a-z0-9])?$'))",
        message=f"metadata.name must begin with a letter and have at most {LABEL_LIMIT} characters, since "
        "Services are named after it",
        path=".metadata.name",
        optional_old=True,
    ),
    rule(
        _OF_FORM.format("components", _LONGEST.format("each.name")),
        message=f"<metadata.name>-<component> must have at most {LABEL_LIMIT} characters: it names a Service",
        path=".spec.components",
    ),
    rule(
        _OF_FORM.format("services", _LONGEST.format("each")),
        message=f"<metadata.name>-<service> must have at most {LABEL_LIMIT} characters: it names a Service",
        path=".spec.services",
    ),
    rule(
        "oldSelf.hasValue() || !has(self.spec.restart)",
        message="restart cannot be set when a graph is created",
        path=".spec.restart",
        optional_old=True,
    ),
)

SPEC: Final = (
    rule(
        "!has(self.components) || !has(self.services)"
        " || size(self.components) == 0 || size(self.services) == 0",
        message="components and services are two forms of the same; write one of them",
        path=".services",
    ),
    rule(
        "!has(self.env) || !has(self.envs)",
        message="env and envs are two names of the same; write one of them",
        path=".envs",
    ),
)

COMPONENTS: Final = (
    rule(
        "self.all(one, self.exists_one(other, other.name.lowerAscii() == one.name.lowerAscii()))",
        message="names must differ by more than case",
    ),
    rule(
        f"self.filter(each, has(each.type) && each.type == '{EPP}').size() <= 1",
        message=f"only one component may be of type {EPP}",
    ),
)

SERVICES: Final = (
    rule(
        "self.all(one, one.matches('^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$'))",
        message="names must be letters, digits and hyphens",
    ),
    rule(
        "self.all(one, self.exists_one(other, other.lowerAscii() == one.lowerAscii()))",
        message="names must differ by more than case",
    ),
    rule(
        f"self.filter(each, has(self[each].componentType) && self[each].componentType == '{EPP}')"
        ".size() <= 1",
        message=f"only one service may be of type {EPP}",
    ),
)

COMPONENT: Final = (
    rule(
        "has(self.podTemplate) && has(self.podTemplate.spec) && has(self.podTemplate.spec.containers)"
        " && self.podTemplate.spec.containers.exists(each, each.name == 'main')",
        message="the template must have a container main",
        path=".podTemplate",
    ),
    rule(
        "!has(self.podTemplate) || !has(self.podTemplate.spec) || !has(self.podTemplate.spec.containers)"
        " || self.podTemplate.spec.containers.all(each,"
        " each.name != 'main' || (has(each.image) && each.image != ''))",
        message="the container main must have an image",
        path=".podTemplate",
    ),
    rule(
        "!has(oldSelf.type) || (has(self.type) && self.type == oldSelf.type)",
        message="type cannot be changed once it is set",
        path=".type",
    ),
)

SERVICE: Final = (
    rule(
        "has(self.extraPodSpec) && has(self.extraPodSpec.mainContainer)"
        " && has(self.extraPodSpec.mainContainer.image) && self.extraPodSpec.mainContainer.image != ''",
        message="extraPodSpec.mainContainer must have an image",
        path=".extraPodSpec",
    ),
    rule(
        "!has(oldSelf.componentType)"
        " || (has(self.componentType) && self.componentType == oldSelf.componentType)",
        message="componentType cannot be changed once it is set",
        path=".componentType",
    ),
)
