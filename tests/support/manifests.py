"""ModelServing manifests for tests: the smallest valid one, and what differs from it."""

from __future__ import annotations

from isthmus.api.meta import Raw


def container(**fields: object) -> Raw:
    """A container with an image; `fields` add to it or replace."""
    return {"name": "engine", "image": "registry.example/engine:1", **fields}


def pod_template(*containers: Raw, **spec: object) -> Raw:
    """A pod template with these containers, or one plain one."""
    return {"spec": {"containers": list(containers) or [container()], **spec}}


def role(name: str = "prefill", **fields: object) -> Raw:
    """A role without workers; `fields` add to it or replace."""
    return {"name": name, "workerReplicas": 0, "entryTemplate": pod_template(), **fields}


def model_serving(
    name: str = "sample",
    *,
    roles: object = None,
    template: Raw | None = None,
    namespace: str = "default",
    **spec: object,
) -> Raw:
    """A ModelServing with these roles, or one plain one; `template` adds to spec.template, `spec` to spec."""
    all_roles = [role()] if roles is None else roles
    return {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"roles": all_roles, **(template or {})}, **spec},
    }
