"""What `isthmus explain` reads of a ModelServing, and the operator's own view of it.

cli/explain.py calls `look`. The objects go through the operator's caches, store and planner, so that what is
explained is what an operator would do; nothing is written, and whoever asks needs only the right to read.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from isthmus.api import labels
from isthmus.api.meta import Object, Resource
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.modelserving.gangapi import UNKNOWN, fields_of
from isthmus.modelserving.plan.explain import explain, gang_note
from isthmus.modelserving.plan.gang import in_cluster
from isthmus.modelserving.plan.model import NO_OFFER, Offer
from isthmus.modelserving.plan.reconcile import plan
from isthmus.modelserving.store import Caches, Store
from isthmus.modelserving.view import Refused
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics

MAX_NAMES: Final = 10
"""Names that are offered where there is none of the name asked for."""

T = TypeVar("T", bound=Object)


class Explained(NamedTuple):
    """What there is to say, and whether all is as wanted."""

    ready: bool
    lines: list[str]


async def look(client: Client, namespace: str, name: str, now: float) -> Explained:
    """Read the ModelServing `namespace/name` and what belongs to it, and explain it as of `now` (seconds
    since the epoch). Raises UserError where there is none, or where it may not be read."""
    serving = await _serving(client, namespace, name)
    selector = f"{labels.NAME}={name}"
    caches = Caches(
        servings=_cache(MODEL_SERVINGS),
        pods=_cache(SERVING_PODS),
        services=_cache(SERVING_SERVICES),
        revisions=_cache(CONTROLLER_REVISIONS),
        pod_groups=_cache(POD_GROUPS),
    )
    store = Store(caches, lambda _: None)
    caches.servings.replace("", [serving], "1")
    held: tuple[Cache[Any], ...] = (caches.pods, caches.services, caches.revisions)
    for cache in held:
        cache.replace("", await _list(client, cache.resource, namespace, selector), "1")
    offer = await _pod_groups(client, caches.pod_groups, namespace, selector)
    if serving.metadata.terminating:
        return Explained(False, [f"ModelServing {namespace}/{name} is being deleted, {_left(caches)}."])
    view = store.view(serving.key, now)
    if view is None or isinstance(view, Refused):
        problem = view.problem if view is not None else "it is gone"
        head = f"ModelServing {namespace}/{name} cannot be acted on: {problem}"
        return Explained(False, [head, "Nothing of it is changed until its spec is mended."])
    desired = in_cluster(view.desired, serving, offer)
    planned = plan(desired, view.groups, view.revisions, now)
    lines = explain(desired, view.groups, planned)
    lines[1:1] = [f"Its spec needs mending: {problem}" for problem in view.problems]
    note = gang_note(desired)
    status = planned.status
    ready = status.available_replicas == status.replicas == desired.spec.replicas
    current = serving.status.observed_generation == serving.metadata.generation
    return Explained(ready and current and not planned.problems, [*lines, *([note] if note else [])])


async def _serving(client: Client, namespace: str, name: str) -> ModelServing:
    try:
        return await client.get(MODEL_SERVINGS, namespace, name)
    except NotFound:
        pass
    except Forbidden as error:
        raise UserError(f"not allowed to read: {error.message}") from error
    try:
        found = await _list(client, MODEL_SERVINGS, namespace, "")
    except NotFound as error:
        hint = "isthmus crds | kubectl apply --server-side -f -"
        raise UserError("the cluster has no ModelServings: the CRD is not installed", hint=hint) from error
    names = sorted(each.metadata.name for each in found)
    shown = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    hint = f"there are: {shown}" if names else f"there is none in namespace {namespace}; another one with -n"
    raise UserError(f"no ModelServing {namespace}/{name}", hint=hint)


async def _list(client: Client, resource: Resource[T], namespace: str, selector: str) -> list[T]:
    found: list[T] = []
    try:
        async for page in client.list_all(resource, namespace, label_selector=selector):
            found += page.items
    except Forbidden as error:
        raise UserError(f"not allowed to read: {error.message}") from error
    return found


async def _pod_groups(client: Client, cache: Cache[Any], namespace: str, selector: str) -> Offer:
    """What the cluster offers for gang scheduling; fills the cache where it is there."""
    try:
        found = await _list(client, POD_GROUPS, namespace, selector)
        cache.replace("", found, "1")
        path = f"/openapi/v3/apis/{POD_GROUPS.group}/{POD_GROUPS.version}"
        fields = fields_of(await client.get_raw(path), POD_GROUPS.kind)
    except NotFound:
        return NO_OFFER
    except (IsthmusError, LookupError, msgspec.MsgspecError):
        return UNKNOWN
    return Offer(served=True, fields=fields)


def _cache(resource: Resource[T]) -> Cache[T]:
    return Cache(resource, metrics=Metrics())


def _left(caches: Caches) -> str:
    names = [each.metadata.name for each in caches.pods.values()]
    return f"and {len(names)} of its pods are still there" if names else "and no pod of it is left"
