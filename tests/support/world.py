"""One namespace of a real cluster as a person with kubectl sees it: what is there, and changes to it.

Everything is plain JSON from the API server, computed independently of the code under test: `expected` says
from a ModelServing's spec alone which objects there must be, and `settled` waits until there are exactly
these and the status says so. Synchronous, apart from the waiting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from isthmus.api.coordination import EVENTS
from isthmus.api.meta import Object, Raw, Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.sandbox.faults import ANNOTATION
from tests.support.eventually import eventually
from tests.support.manifests import model_serving, pod_template, role
from tests.support.rawapi import RawApi

PREFIX: Final = "modelserving.volcano.sh/"
SETTLE_S: Final = 60.0
NAMESPACES: Final = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", type=Object, namespaced=False
)


class Expected(NamedTuple):
    """The names that there must be, by kind."""

    pods: set[str]
    services: set[str]


def expected(serving: Raw, groups: Iterable[int] | None = None) -> Expected:
    """The objects of a ModelServing (MS-21, MS-22, MS-32); `groups` are its ordinals where not 0 to n-1."""
    spec, name = serving["spec"], serving["metadata"]["name"]
    pods, services = set(), set()
    for group in range(spec.get("replicas", 1)) if groups is None else groups:
        for each in spec["template"]["roles"]:
            for replica in range(each.get("replicas", 1)):
                entry = f"{name}-{group}-{each['name']}-{replica}"
                workers = each["workerReplicas"] if "workerTemplate" in each else 0
                pods |= {f"{entry}-{index}" for index in range(1 + workers)}
                if "workerTemplate" in each:
                    services.add(f"{entry}-0")
    return Expected(pods, services)


def is_ready(pod: Raw) -> bool:
    """Whether it serves: Running and Ready, and not about to go."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and pod["status"].get("phase") == "Running" and not is_dying(pod)


def is_dying(pod: Raw) -> bool:
    """Whether its deletion has begun."""
    return "deletionTimestamp" in pod["metadata"]


def label(obj: Raw, key: str) -> str:
    """One of our labels; empty where absent."""
    value: str = obj["metadata"].get("labels", {}).get(PREFIX + key, "")
    return value


def team(name: str = "p", replicas: int = 1, workers: int = 1, image: str = "engine:1", **more: Any) -> Raw:
    """A role with workers (and so with Services); `grace` is the pods' termination grace in seconds."""
    grace = more.pop("grace", None)
    pod = {"terminationGracePeriodSeconds": grace} if grace is not None else {}
    template = pod_template({"name": "engine", "image": f"registry.example/{image}"}, **pod)
    parts = {"workerTemplate": template} if workers else {}
    return role(name, replicas=replicas, workerReplicas=workers, entryTemplate=template, **parts, **more)


def serving(name: str = "a", replicas: int = 1, *roles: Raw, **spec: Any) -> Raw:
    """A ModelServing with these roles, or with one `p` of an entry and a worker."""
    return model_serving(name, roles=list(roles) or [team()], replicas=replicas, **spec)


class World:
    """See the module."""

    def __init__(self, api: RawApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    # ModelServings

    def create(self, manifest: Raw) -> Raw:
        """Create it in this namespace; returns what the server made of it."""
        manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": self.namespace}}
        answer = self.api.create(MODEL_SERVINGS, manifest)
        assert answer.code == 201, answer.body
        created: Raw = answer.body
        return created

    def serving(self, name: str = "a") -> Raw:
        """The ModelServing as it is now."""
        return self.get(MODEL_SERVINGS, name)

    def status(self, name: str = "a") -> Raw:
        """Its status."""
        found: Raw = self.serving(name).get("status", {})
        return found

    def condition(self, kind: str, name: str = "a") -> Raw:
        """One of its conditions; empty where there is none."""
        return next((c for c in self.status(name).get("conditions", []) if c["type"] == kind), {})

    def edit(self, change: Callable[[Raw], object], name: str = "a") -> Raw:
        """Let `change` work on the spec, and store it; tried again where another write came between."""
        while True:
            body = self.serving(name)
            change(body["spec"])
            answer = self.api.call("PUT", MODEL_SERVINGS.path(self.namespace, name), body)
            if answer.code != 409:
                assert answer.code == 200, answer.body
                stored: Raw = answer.body
                return stored

    def set_image(self, image: str, name: str = "a", role: str = "") -> Raw:
        """Give all roles, or the one named, another image."""

        def change(spec: Raw) -> None:
            for each in spec["template"]["roles"]:
                if each["name"] == role or not role:
                    for part in ("entryTemplate", "workerTemplate"):
                        if part in each:
                            each[part]["spec"]["containers"][0]["image"] = f"registry.example/{image}"

        return self.edit(change, name)

    def scale(self, replicas: int, name: str = "a") -> None:
        """What kubectl scale and an autoscaler do: a write to the scale subresource."""
        answer = self.api.patch(
            MODEL_SERVINGS, self.namespace, name, {"spec": {"replicas": replicas}}, subresource="scale"
        )
        assert answer.code == 200, answer.body

    def scale_role(self, replicas: int, name: str = "a", *, index: int = 0) -> None:
        """Change one role's count."""
        self.edit(lambda spec: spec["template"]["roles"][index].update(replicas=replicas), name)

    # Anything

    def get(self, resource: Resource[Any], name: str) -> Raw:
        """One object; AssertionError where it is not there."""
        answer = self.api.get(resource, self.namespace, name)
        assert answer.code == 200, answer.message
        found: Raw = answer.body
        return found

    def find(self, resource: Resource[Any], selector: str = "") -> dict[str, Raw]:
        """All objects of a kind, by name."""
        answer = self.api.call("GET", resource.path(self.namespace), labelSelector=selector)
        assert answer.code == 200, answer.message
        return {item["metadata"]["name"]: item for item in answer.body["items"]}

    def merge(self, resource: Resource[Any], name: str, patch: Raw) -> None:
        """A merge patch, as kubectl patch sends it."""
        answer = self.api.patch(resource, self.namespace, name, patch)
        assert answer.code == 200, answer.body

    def delete(
        self, resource: Resource[Any], name: str, *, propagation: str = "", grace_s: int | None = None
    ) -> None:
        """Delete one object; `grace_s=0` is what kubectl calls --force."""
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            options["propagationPolicy"] = propagation
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        answer = self.api.call("DELETE", resource.path(self.namespace, name), options)
        assert answer.code in (200, 202), answer.body

    # What a ModelServing owns

    def pods(self, name: str = "a") -> dict[str, Raw]:
        """Its pods by name, dying ones included."""
        return self.find(SERVING_PODS, f"{PREFIX}name={name}")

    def uids(self, name: str = "a") -> dict[str, str]:
        """Its pods' UIDs."""
        return {pod: found["metadata"]["uid"] for pod, found in self.pods(name).items()}

    def services(self, name: str = "a") -> dict[str, Raw]:
        """Its Services by name."""
        return self.find(SERVING_SERVICES, f"{PREFIX}name={name}")

    def revisions(self, name: str = "a") -> dict[str, Raw]:
        """Its ControllerRevisions by name."""
        return self.find(CONTROLLER_REVISIONS, f"{PREFIX}name={name}")

    def events(self, name: str = "a", reason: str = "") -> list[Raw]:
        """The events about it, of one reason or all."""
        return [
            event
            for event in self.find(EVENTS).values()
            if event["regarding"].get("name") == name and reason in ("", event["reason"])
        ]

    def images(self, name: str = "a") -> dict[str, str]:
        """The image tag of each of its pods."""
        found = {}
        for pod, each in self.pods(name).items():
            found[pod] = each["spec"]["containers"][0]["image"].rpartition("/")[2]
        return found

    def fault(self, pod: str, text: str) -> None:
        """Ask the simulated node for a fault of a pod; see isthmus.sandbox.faults."""
        self.annotate(pod, **{ANNOTATION: text})

    def annotate(self, pod: str, **annotations: str) -> None:
        """Put annotations on a pod."""
        self.merge(SERVING_PODS, pod, {"metadata": {"annotations": annotations}})

    # Waiting

    async def settled(
        self, name: str = "a", *, groups: Iterable[int] | None = None, within_s: float = SETTLE_S
    ) -> Raw:
        """The ModelServing, once its objects are exactly those of its spec, all serve, and its status says
        so."""
        kept = None if groups is None else tuple(groups)

        async def check() -> Raw:
            found = self.serving(name)
            self.assert_whole(found, kept)
            return found

        return await eventually(check, within_s=within_s, every_s=0.1)

    def assert_whole(self, found: Raw, groups: Iterable[int] | None = None) -> None:
        """One look at what `settled` waits for."""
        name, status, wanted = found["metadata"]["name"], found.get("status", {}), found["spec"]["replicas"]
        assert status.get("observedGeneration") == found["metadata"]["generation"], brief(status)
        counts = [status.get(f"{kind}Replicas", 0) for kind in ("available", "updated")]
        assert [status.get("replicas", 0), *counts] == [wanted] * 3, brief(status)
        pods, due = self.pods(name), expected(found, groups)
        assert set(pods) == due.pods, f"extra {set(pods) - due.pods}, missing {due.pods - set(pods)}"
        unready = [pod for pod, each in pods.items() if not is_ready(each)]
        assert not unready, unready
        services = set(self.services(name))
        assert services == due.services, services ^ due.services
        owners = {
            owner["uid"]
            for kind in (pods, self.services(name))
            for each in kind.values()
            for owner in each["metadata"]["ownerReferences"]
        }
        assert owners <= {found["metadata"]["uid"]}, owners


def brief(status: Raw) -> str:
    """A status in one line, for a failing assertion."""
    return json.dumps(status)[:1500]


def groups_of(pods: Iterable[Raw]) -> dict[str, list[Raw]]:
    """Pods by the name of their group."""
    found: dict[str, list[Raw]] = {}
    for pod in pods:
        found.setdefault(label(pod, "group-name"), []).append(pod)
    return found
