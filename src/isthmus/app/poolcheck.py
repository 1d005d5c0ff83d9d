"""What `isthmus pool check` reads, from a cluster or from files, and the check that comes of it.

cli/pool.py calls `of_cluster`, `of_documents` and, given a discovery service, `arrived`. The first two fill
the controller's own `Observed` and hand it to poolrelay/plan/check.py. Of a cluster it is read what the
controller would see, with the rights of whoever asks; nothing is written. What cannot be read is a UserError:
a check that has not seen everything would tell of a pool that is not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from isthmus.api import labels
from isthmus.api.meta import Object, ObjectMeta, Raw, Resource
from isthmus.api.pods import SERVING_SERVICES
from isthmus.api.poolgraph import POOL_GRAPHS
from isthmus.api.poolrelay import (
    CLUSTER_PROPERTIES,
    EXPORT_VERSIONS,
    POOL_RELAYS,
    PROPERTY_NAME,
    RELAY_CHILDREN,
    SERVING_TARGETS,
    ClusterProperty,
    DynamoPoolRelay,
    RelaySpec,
    pool_relay_name,
    service_exports,
)
from isthmus.api.pools import InvalidField, PoolKey, check_key, read_pool_list
from isthmus.clock import SystemClock
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.poolrelay import gate
from isthmus.poolrelay.plan.arrival import Arrival, judge, read_unmatched, unreachable
from isthmus.poolrelay.plan.check import Check, Finding, check
from isthmus.poolrelay.plan.model import GRAPH_KIND, Observed, Pool, Property, PropertyState, RelaySettings
from isthmus.poolrelay.plan.pool import graph_pool, serving_pool
from isthmus.poolrelay.plan.publication import target_of
from isthmus.poolrelay.plan.reconcile import sort_children
from isthmus.relay.discoveryclient import DiscoveryClient, NotTaken
from isthmus.relay.options import DiscoveryOptions

T = TypeVar("T", bound=Object)

KINDS: Final[tuple[Resource[Any], ...]] = (
    POOL_RELAYS,
    *POOL_GRAPHS,
    SERVING_TARGETS,
    SERVING_SERVICES,
    *RELAY_CHILDREN,
    *CLUSTER_PROPERTIES,
    *(service_exports(version) for version in EXPORT_VERSIONS),
)
"""What is looked for among manifests."""
PAGE: Final = 500
UNSAID: Final = "unsaid"
"""The cluster ID of a relay that is not there yet, where nothing says what it would be."""


class Question(NamedTuple):
    """Which pool is asked about, and under which settings. `cluster_id` is supposed where there is no
    relay."""

    namespace: str
    name: str
    settings: RelaySettings
    cluster_id: str = ""


async def of_cluster(client: Client, question: Question) -> Check:
    """Check a pool of a cluster. Raises UserError where it cannot be read."""
    missing_api: UserError | None = None
    settings = question.settings
    try:
        version = await gate.export_version(client, settings.implementation)
    except UserError as error:
        if error.__cause__ is not None:  # it is not known whether the API is served
            raise
        missing_api, version = error, ""
    settings = replace(settings, export_version=version)
    try:
        found = await _read(client, question, version)
    except IsthmusError as error:
        raise UserError(f"cannot read what the check needs: {error}") from error
    return _with(_check(found, question, settings), missing_api)


async def arrived(checked: Check, options: DiscoveryOptions) -> Check:
    """The check, and whether the pool is at the discovery service, and if not why (PW-7, PW-12)."""
    if checked.cluster_id in ("", UNSAID):
        raise UserError("the pool's cluster ID is not known", hint="give --cluster-id")
    key = PoolKey(checked.cluster_id, checked.namespace, checked.name)
    try:
        check_key(key)
    except InvalidField as problem:
        raise UserError(f"the pool has no key to look for: {problem}") from None
    async with DiscoveryClient(options, SystemClock()) as client:
        found = await _ask_discovery(client, key)
    return replace(
        checked,
        arrived=found.arrived,
        findings=(*checked.findings, *found.findings),
        notes=(*checked.notes, *found.notes),
    )


async def _ask_discovery(client: DiscoveryClient, key: PoolKey) -> Arrival:
    try:
        listed = read_pool_list(await client.fetch("/pools"))
    except (NotTaken, InvalidField) as problem:
        return unreachable(str(problem))
    try:
        report = read_unmatched(await client.fetch("/pools/unmatched"))
    except (NotTaken, InvalidField):  # without reasons it can still be said that it is not there
        report = ()
    return judge(key, listed, report)


def of_documents(documents: Iterable[Raw], question: Question) -> Check:
    """Check a pool of manifests, without a cluster: those of the question's namespace, or that name none.
    Raises UserError for one that cannot be read."""
    version = EXPORT_VERSIONS[0] if question.settings.implementation else ""
    settings = replace(question.settings, export_version=version)
    return _check(_decode(documents, question.namespace), question, settings)


def only_name(documents: Iterable[Raw]) -> str:
    """The name of the one relay among documents, or else of the one graph. Raises UserError where that is not
    clear."""
    for kind in (POOL_RELAYS.kind, GRAPH_KIND):
        names = {each["metadata"]["name"] for each in documents if each.get("kind") == kind}
        if len(names) == 1:
            return str(names.pop())
        if names:
            raise UserError(f"there are several {kind}s: {', '.join(sorted(names))}", hint="name one of them")
    raise UserError(f"there is neither a {POOL_RELAYS.kind} nor a {GRAPH_KIND}", hint="name the pool")


class _Objects:
    """What was read, by kind and by what it was decoded into."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, type[Object]], dict[str, Object]] = {}

    def add(self, resource: Resource[T], obj: T) -> None:
        """Another object."""
        self._found.setdefault((resource.kind, resource.type), {})[obj.metadata.name] = obj

    def all(self, resource: Resource[T]) -> dict[str, T]:
        """All of a kind by name, in whatever version they were read."""
        return cast(dict[str, T], self._found.get((resource.kind, resource.type), {}))

    def one(self, resource: Resource[T], name: str) -> T | None:
        """One of them."""
        return self.all(resource).get(name)

    def pool(self, relay: DynamoPoolRelay, default_backend: str) -> Pool | None:
        """The pool that the relay is for."""
        kind, name = target_of(relay)
        if kind == GRAPH_KIND:
            graph = self.one(POOL_GRAPHS[0], name)
            return None if graph is None else graph_pool(graph, default_backend)
        serving = self.one(SERVING_TARGETS, name)
        services = [each for each in self.all(SERVING_SERVICES).values() if each.metadata.labels.name == name]
        return None if serving is None else serving_pool(serving, services)


def _check(found: _Objects, question: Question, settings: RelaySettings) -> Check:
    cluster: Property = PropertyState.UNWATCHED
    if settings.checks_cluster_id:
        cluster = found.one(CLUSTER_PROPERTIES[0], PROPERTY_NAME) or PropertyState.ABSENT
    known = found.one(POOL_RELAYS, question.name)
    relay = known or _supposed(question, cluster)
    own = pool_relay_name(question.name)
    children = {
        resource.kind: child for resource in RELAY_CHILDREN if (child := found.one(resource, own)) is not None
    }
    ours, strangers = sort_children(children, relay.metadata.uid)
    observed = Observed(
        relay=relay,
        pool=found.pool(relay, settings.discovery_backend),
        cluster=cluster,
        exports=found.all(service_exports("")),
        children=ours,
        strangers=strangers,
    )
    checked = check(observed, settings)
    if known is not None:
        return checked
    text = f"there is no {POOL_RELAYS.kind} {question.name}: nothing is exported until there is one"
    return replace(checked, published=False, findings=(Finding("RelayNotFound", text), *checked.findings))


def _with(checked: Check, missing_api: UserError | None) -> Check:
    if missing_api is None:
        return checked
    finding = Finding("ExportApiMissing", f"{missing_api}")
    return replace(checked, findings=(finding, *checked.findings))


def _supposed(question: Question, cluster: Property) -> DynamoPoolRelay:
    """The relay that somebody would make."""
    of_cluster = cluster.spec.value if isinstance(cluster, ClusterProperty) else ""
    spec = RelaySpec(cluster_id=question.cluster_id or of_cluster or UNSAID)
    meta = ObjectMeta(name=question.name, namespace=question.namespace, uid="(none)")
    return DynamoPoolRelay(metadata=meta, spec=spec)


async def _read(client: Client, question: Question, version: str) -> _Objects:
    """From an API server; what is not there, or whose API is not, is left out. Raises IsthmusError."""
    found, namespace = _Objects(), question.namespace

    async def get(resource: Resource[Any], name: str) -> None:
        with contextlib.suppress(NotFound):
            found.add(resource, await client.get(resource, namespace if resource.namespaced else "", name))

    async def list_all(resource: Resource[Any], selector: str = "") -> None:
        async for page in client.list_all(resource, namespace, label_selector=selector, limit=PAGE):
            for each in page.items:
                found.add(resource, each)

    await get(POOL_RELAYS, question.name)
    relay = found.one(POOL_RELAYS, question.name)
    kind, name = (GRAPH_KIND, question.name) if relay is None else target_of(relay)
    if kind == GRAPH_KIND:
        for resource in POOL_GRAPHS:
            await get(resource, name)
    else:
        await get(SERVING_TARGETS, name)
        await list_all(SERVING_SERVICES, f"{labels.NAME}={name}")
    for child in RELAY_CHILDREN:
        await get(child, pool_relay_name(question.name))
    if question.settings.checks_cluster_id:
        for of_cluster in CLUSTER_PROPERTIES:
            await get(of_cluster, PROPERTY_NAME)
    if version:
        await list_all(service_exports(version))
    return found


def _decode(documents: Iterable[Raw], namespace: str) -> _Objects:
    """From manifests. Raises UserError."""
    found = _Objects()
    for document in documents:
        where = document["metadata"].get("namespace", namespace)
        for resource in KINDS:
            if (document.get("apiVersion"), document["kind"]) != (resource.api_version, resource.kind):
                continue
            if resource.namespaced and where != namespace:
                continue
            raw_object = document | {"metadata": document["metadata"] | {"namespace": where}}
            try:
                found.add(resource, msgspec.json.decode(msgspec.json.encode(raw_object), type=resource.type))
            except msgspec.MsgspecError as error:
                raise UserError(f"{resource.kind} {document['metadata'].get('name')}: {error}") from error
    return found
