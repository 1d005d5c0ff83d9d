"""The CRD of Volcano's PodGroup as clusters that have Volcano serve it: what a client can notice of it.

Fields, defaults and choices are those of Volcano's published API, without those that nothing here touches.
Without `sub_groups` it is that of Volcano before 1.14. The benchmark and tests give it to
`Sandbox.start(crds=...)` or apply it later, as multicluster.py beside it. Pure.
"""

from __future__ import annotations

from isthmus.api.crd import schema
from isthmus.api.meta import Raw


def pod_groups(*, sub_groups: bool = True) -> Raw:
    """The definition."""
    fields: dict[str, Raw] = {
        "minMember": {"type": "integer", "format": "int32"},
        "minTaskMember": schema.mapping("Task to pods.", {"type": "integer", "format": "int32"}),
        "queue": schema.text("Its queue.", default="default"),
        "priorityClassName": schema.text("Its priority."),
        "minResources": schema.mapping("What they need.", _QUANTITY),
        "networkTopology": _topology(),
    }
    if sub_groups:
        selector = schema.struct(
            "Which pods.", {"matchLabels": schema.mapping("Labels.", {"type": "string"})}
        )
        policy = schema.struct(
            "A sub-group.",
            {
                "name": schema.text("Its name."),
                "labelSelector": selector,
                "matchLabelKeys": schema.array("Keys.", {"type": "string"}),
                "subGroupSize": {"type": "integer", "format": "int32"},
                "minSubGroups": {"type": "integer", "format": "int32"},
                "networkTopology": _topology(),
            },
        )
        fields["subGroupPolicy"] = schema.array("Sub-groups.", policy)
    status = schema.struct("What is.", {"phase": schema.text("Its phase.")})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "names": {
                "kind": "PodGroup",
                "listKind": "PodGroupList",
                "plural": "podgroups",
                "singular": "podgroup",
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": schema.struct("What is wanted.", fields),
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


_QUANTITY: Raw = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def _topology() -> Raw:
    fields = {
        "mode": schema.choice("How strictly.", "hard", "soft", default="hard"),
        "highestTierAllowed": {"type": "integer"},
        "highestTierName": schema.text("The tier's name."),
    }
    return schema.struct("Where in the network.", fields)
