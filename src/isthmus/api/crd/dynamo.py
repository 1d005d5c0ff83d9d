"""The CustomResourceDefinition of DynamoGraphDeployment: v1beta1 and v1alpha1, both served, none converted.

`isthmus crds`, the chart and tests install it. There is no conversion webhook, so the API server only renames
the version (GD-6): both versions therefore have one schema that knows the fields of both, or what one of them
stored would be cut off when the other is read. A spec is written in one form, `components` or `services`.
What could never work is refused when it is created (G-5).
"""

from __future__ import annotations

from typing import Final

from isthmus.api.crd.dynamo_rules import COMPONENT, COMPONENTS, NAME, SERVICE, SERVICES, SPEC, TYPES
from isthmus.api.crd.podspec import MAX_CONTAINERS, pod_spec
from isthmus.api.crd.schema import (
    Schema,
    anything,
    array,
    choice,
    column,
    count,
    crd,
    mapping,
    quantity,
    root,
    ruled,
    struct,
    text,
    version,
)
from isthmus.api.dynamo.graphs import GRAPHS
from isthmus.api.dynamo.model import MAX_COMPONENTS
from isthmus.api.meta import Raw
from isthmus.api.names import LABEL_LIMIT

GROUP: Final = GRAPHS[0].group
NAME_PATTERN: Final = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"
MAX_CLAIMS: Final = 100


def definition() -> Raw:
    """The CRD as a new dictionary, ready to be created or applied."""
    made = crd(GRAPHS[0], *(_version(each.version) for each in GRAPHS), short="dgd")
    made["spec"]["conversion"] = {"strategy": "None"}
    return made


def _version(name: str) -> Schema:
    return version(
        name,
        schema(),
        column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        column("Backend", "string", ".spec.backendFramework"),
        column("Age", "date", ".metadata.creationTimestamp"),
        old=name != GRAPHS[0].version,
    )


def schema() -> Schema:
    """The OpenAPI schema of the whole object, the same in both versions."""
    whole = root(
        "DynamoGraphDeployment runs a graph of components, such as a frontend and workers, each as a "
        "Deployment with a Service.",
        _spec(),
        _status(),
    )
    return ruled(whole, *NAME)


def _spec() -> Schema:
    container = _container()
    components = array("The components, as v1beta1 has them.", _component(), most=MAX_COMPONENTS)
    components |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    services = mapping("The components by name, as v1alpha1 has them.", _service(), most=MAX_COMPONENTS)
    env = container["env"]
    fields = {
        "components": ruled(components, *COMPONENTS),
        "services": ruled(services, *SERVICES),
        "env": env | {"description": "Environment of every component, below that of its template."},
        "envs": env | {"description": "The same in v1alpha1."},
        "labels": mapping("Labels of everything that is made.", text("A value."), most=100),
        "annotations": mapping("Annotations of everything that is made.", text("A value."), most=100),
        "backendFramework": choice("What the workers run.", "sglang", "vllm", "trtllm"),
        "priorityClassName": text("Priority of pods whose template names none.", most=253),
        "pvcs": array("Claims, in v1alpha1; only those that exist can be used.", _claim(), most=MAX_CLAIMS),
        "restart": _restart(),
        "providerOverride": anything("Kept, and without effect here."),
        "topologyConstraint": anything("Kept, and without effect here."),
        "experimental": anything("Kept, and without effect here."),
    }
    return ruled(struct("What is wanted.", fields), *SPEC)


def _container() -> Schema:
    found: Schema = pod_spec("", containers=0)["properties"]["containers"]["items"]["properties"]
    return found


def _restart() -> Schema:
    strategy = struct(
        "How to restart.",
        {
            "type": choice("One after the other, or all at once.", "Sequential", "Parallel"),
            "order": array("Names of components.", text("A name.", most=63), most=MAX_COMPONENTS),
        },
    )
    return struct(
        "A restart on demand; refused in status, since it is not run here.",
        {"id": text("Another one is another restart.", most=253), "strategy": strategy},
    )


def _claim() -> Schema:
    fields = {
        "name": text("Its name.", most=253) | {"minLength": 1},
        "create": {"type": "boolean", "description": "Refused in status: claims are not made here."},
        "size": quantity("How large."),
        "storageClass": text("Its storage class.", most=253),
        "volumeAccessMode": text("Its access mode.", most=63),
    }
    return struct("A PersistentVolumeClaim.", fields, required=("name",))


def _switch(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _parts() -> dict[str, Schema]:
    """What a component has in both versions."""
    multinode = struct(
        "Several nodes per replica; refused in status, since it is not run here.",
        {"nodeCount": count("Nodes.", least=2, default=2)},
    )
    model = struct(
        "The model that it serves; refused in status, since nothing is made of it here.",
        {"name": text("Its name.", most=253), "revision": text("Its revision.", most=253)},
    )
    return {
        "replicas": count("How many pods.", default=1),
        "globalDynamoNamespace": _switch("Use the Dynamo namespace that graphs share."),
        "multinode": multinode,
        "modelRef": model,
        "eppConfig": anything("Refused in status: it is not handed to an endpoint picker here."),
    }


def _component() -> Schema:
    template = struct(
        "The pods. The container `main` is the component, all others are sidecars.",
        {
            "metadata": struct(
                "Metadata of the pods.",
                {
                    "labels": mapping("Labels.", text("A value."), most=100),
                    "annotations": mapping("Annotations.", text("A value."), most=100),
                },
            ),
            "spec": _bounded(pod_spec("The pods' spec.", containers=1)),
        },
    )
    cache = struct(
        "A claim for what was compiled.",
        {
            "pvcName": text("Name of the claim.", most=253) | {"minLength": 1},
            "mountPath": text("Where it is mounted.", most=1024) | {"minLength": 1},
        },
        required=("pvcName", "mountPath"),
    )
    fields = {
        "name": text("Its name, from which those of its objects are made.", most=LABEL_LIMIT)
        | {"minLength": 1, "pattern": NAME_PATTERN},
        "type": choice("What it is. Cannot be changed once set.", *TYPES),
        **_parts(),
        "podTemplate": template,
        "sharedMemorySize": quantity("Size of /dev/shm, 8Gi where absent; `0` for none."),
        "runtimeVersionOverride": text("Kept, and without effect here.", most=63),
        "frontendSidecar": text("A container that gets a frontend's defaults.", most=LABEL_LIMIT),
        "scalingAdapter": anything("Refused in status: replicas are those of the spec."),
        "compilationCache": cache,
        "minAvailable": count("Kept, and without effect here."),
        "topologyConstraint": anything("Kept, and without effect here."),
        "experimental": anything("Kept, and without effect here."),
    }
    return ruled(struct("A component.", fields, required=("name",)), *COMPONENT)


def _bounded(pod: Schema) -> Schema:
    containers = pod["properties"]["containers"]
    containers["maxItems"] = MAX_CONTAINERS
    name = containers["items"]["properties"]["name"]
    name["maxLength"] = LABEL_LIMIT
    containers["items"]["properties"]["image"]["maxLength"] = 4096
    return pod


def _service() -> Schema:
    container = _container()
    pod = pod_spec("The pods' spec; mainContainer is the component.", containers=0)
    pod.pop("required", None)
    main = pod["properties"]["containers"]["items"]
    pod["properties"]["mainContainer"] = {
        **{key: value for key, value in main.items() if key != "required"},
        "description": "The container that is the component.",
    }
    mount = struct(
        "A claim in the pods.",
        {
            "name": text("Name of the claim.", most=253) | {"minLength": 1},
            "mountPoint": text("Where it is mounted.", most=1024),
            "useAsCompilationCache": _switch("Whether it is for what was compiled."),
        },
        required=("name",),
    )
    metadata = {
        "labels": mapping("Labels of the pods.", text("A value."), most=100),
        "annotations": mapping("Annotations of the pods.", text("A value."), most=100),
    }
    fields = {
        "componentType": text("What it is. Cannot be changed once set.", most=63),
        "subComponentType": text("Of a worker: prefill or decode.", most=63),
        "serviceName": text("Has no effect: the key is the name.", most=253),
        "dynamoNamespace": text("Has no effect.", most=253),
        **_parts(),
        "envs": container["env"] | {"description": "Environment of the component."},
        "envFromSecret": text("A Secret that is environment.", most=253),
        "resources": _resources(),
        "volumeMounts": array("Claims in the pods.", mount, most=MAX_CLAIMS),
        "sharedMemory": struct(
            "/dev/shm.", {"disabled": _switch("None at all."), "size": quantity("Its size.")}
        ),
        "extraPodMetadata": struct("More metadata of the pods.", metadata),
        "extraPodSpec": pod,
        **metadata,
        "livenessProbe": container["livenessProbe"] | {"description": "When a pod is started anew."},
        "readinessProbe": container["readinessProbe"] | {"description": "When a pod is ready."},
        "scalingAdapter": struct(
            "Refused in status where enabled: replicas are those of the spec.",
            {"enabled": _switch("Whether it is wanted.")},
        ),
        "ingress": anything("Has no effect: no Ingress is made."),
        "autoscaling": anything("Has no effect."),
    }
    return ruled(struct("A component.", fields), *SERVICE)


def _resources() -> Schema:
    side = struct(
        "Amounts.",
        {
            "cpu": quantity("CPUs."),
            "memory": quantity("Memory."),
            "gpu": quantity("GPUs."),
            "gpuType": text("The resource that `gpu` counts; nvidia.com/gpu where absent.", most=253),
            "custom": mapping("Other resources.", quantity("An amount."), most=100),
        },
    )
    return struct(
        "Resources of the component.",
        {"requests": side, "limits": side, "claims": anything("Claims of devices.")},
    )


def _status() -> Schema:
    component = struct(
        "How one component stands.",
        {
            "componentKind": text("What it is made of: Deployment."),
            "componentNames": array("Names of the Deployments.", text("A name.")),
            "replicas": count("Pods that there are.", least=None),
            "updatedReplicas": count("Those of the present spec.", least=None),
            "readyReplicas": count("Those that are ready.", least=None),
            "availableReplicas": count("Those that have been ready for long enough.", least=None),
        },
    )
    condition = struct(
        "One condition.",
        {
            "type": text("Type of the condition.", most=316),
            "status": choice("Whether it holds.", "True", "False", "Unknown"),
            "observedGeneration": count("metadata.generation that it was computed from.", bits=64),
            "lastTransitionTime": text("When status last changed.") | {"format": "date-time"},
            "reason": text("Why, in one word.", most=1024),
            "message": text("Why, for people.", most=32768),
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    fields = {
        "observedGeneration": count("metadata.generation that the rest describes.", least=None, bits=64),
        "state": choice(
            "How the graph stands.",
            "initializing",
            "pending",
            "successful",
            "failed",
            default="initializing",
        ),
        "conditions": {
            **array("Ready says the same, and why.", condition),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "components": mapping("How each component stands.", component),
        "services": mapping("The same, of graphs that are written as v1alpha1 has it.", component),
    }
    return struct("What is; the controller writes it.", fields)
