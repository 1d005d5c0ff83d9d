"""LeaderWorkerSets for tests, and their CRD as clusters that have them serve it: what a client can notice."""

from __future__ import annotations

from typing import Any

import msgspec

from isthmus.api.crd import schema
from isthmus.api.crd.podspec import pod_spec
from isthmus.api.leaderworkerset import LeaderWorkerSet
from isthmus.api.meta import Raw
from tests.support import manifests


def manifest(name: str = "big", *, leader: Raw | None = None, worker: Raw | None = None, **spec: Any) -> Raw:
    """A LeaderWorkerSet of one worker template, or of two templates; `size` goes to the template, other
    keywords to the spec."""
    template: Raw = {"workerTemplate": worker or manifests.pod_template()}
    if leader is not None:
        template["leaderTemplate"] = leader
    if "size" in spec:
        template["size"] = spec.pop("size")
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "leaderWorkerTemplate": template},
    }


def decode(raw: Raw, **metadata: Any) -> LeaderWorkerSet:
    """As a cache holds it."""
    full = {**raw, "metadata": {"uid": "lws-1", "resourceVersion": "1", **raw["metadata"], **metadata}}
    return msgspec.json.decode(msgspec.json.encode(full), type=LeaderWorkerSet)


def leader_worker_sets() -> Raw:
    """The definition."""
    pod = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "spec": pod_spec("The pod.", containers=1),
        },
    }
    template = schema.struct(
        "A group.",
        {
            "leaderTemplate": pod,
            "workerTemplate": pod,
            "size": schema.count("Pods of a group.", default=1),
            "restartPolicy": schema.text("What is replaced.", default="RecreateGroupOnPodRestart"),
        },
        required=("workerTemplate",),
    )
    fields = {
        "replicas": schema.count("Groups.", default=1),
        "leaderWorkerTemplate": template,
        "startupPolicy": schema.text("When workers start.", default="LeaderCreated"),
    }
    status = {
        "replicas": schema.count("Groups there are.", least=None),
        "readyReplicas": schema.count("Groups that are ready.", least=None),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "leaderworkersets.leaderworkerset.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "leaderworkerset.x-k8s.io",
            "names": {
                "kind": "LeaderWorkerSet",
                "listKind": "LeaderWorkerSetList",
                "plural": "leaderworkersets",
                "singular": "leaderworkerset",
                "shortNames": ["lws"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
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
                                "status": schema.struct("What is.", status),
                            },
                        }
                    },
                }
            ],
        },
    }
