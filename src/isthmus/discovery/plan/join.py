"""Registrations and imports joined into pools, and what does not match and why (DS-9 to DS-17, PW-12).

A pool needs a live registration and, in the modes that import, a ready endpoint of its relay's Service from
the cluster of its own cluster ID, in its own namespace (DS-10, DS-14). Names are put together from the
registration's, never taken apart, so that no name can be read in two ways (DS-17).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from isthmus.api.pools import Pool, PoolKey, Registration
from isthmus.discovery.plan.imports import Endpoints, Source

REGISTRATIONS, MCS, KARMADA = "registrations", "mcs", "karmada"
MODES: Final = (REGISTRATIONS, MCS, KARMADA)
KARMADA_LIMIT: Final = 55
"""Characters of a Service's name that Karmada can import (`derived-` and 63)."""


class Suffixes(NamedTuple):
    """What the Services of a pool end in, after its name (DS-11)."""

    frontend: str = "-frontend"
    relay: str = "-pool-relay"


DEFAULT_SUFFIXES: Final = Suffixes()


class Unmatched(NamedTuple):
    """A registration without a pool, or an imported relay without a registration, and why."""

    kind: str
    cluster_id: str
    namespace: str
    name: str
    reason: str
    message: str


class Joined(NamedTuple):
    """Pools sorted by key, and what is missing."""

    pools: tuple[Pool, ...]
    unmatched: tuple[Unmatched, ...]


def join(
    registrations: Iterable[Registration],
    imports: Mapping[Source, Endpoints],
    *,
    mode: str,
    suffixes: Suffixes = DEFAULT_SUFFIXES,
) -> Joined:
    """All pools of this moment."""
    registered = sorted(registrations, key=lambda each: each.key)
    if mode == REGISTRATIONS:
        return Joined(tuple(_registered(each) for each in registered), ())
    pools: list[Pool] = []
    unmatched: list[Unmatched] = []
    for each in registered:
        relay = imports.get(Source(each.cluster_id, each.namespace, each.name + suffixes.relay))
        if relay is not None and relay.grpc:
            pools.append(_imported(each, relay, imports, suffixes))
        else:
            unmatched.append(_why_not(each, relay, imports, mode, suffixes))
    unmatched += _strangers({each.key for each in registered}, imports, suffixes)
    return Joined(tuple(pools), tuple(unmatched))


def _registered(each: Registration) -> Pool:
    urls = tuple(sorted(frontend.url for frontend in each.frontends))
    return _pool(each, (each.relay.url,), urls, "registration")


def _imported(
    each: Registration, relay: Endpoints, imports: Mapping[Source, Endpoints], suffixes: Suffixes
) -> Pool:
    frontend = imports.get(
        Source(each.cluster_id, each.namespace, each.name + suffixes.frontend), Endpoints()
    )
    return _pool(each, relay.urls("grpc"), frontend.urls("http"), "registration+import")


def _pool(each: Registration, relays: tuple[str, ...], frontends: tuple[str, ...], source: str) -> Pool:
    return Pool(
        pool_id=each.key.pool_id,
        cluster_id=each.cluster_id,
        namespace=each.namespace,
        name=each.name,
        location=each.location,
        runtime_namespaces=each.runtime_namespaces,
        relay_urls=relays,
        frontend_urls=frontends,
        models=each.models,
        incarnation=each.relay.incarnation,
        revision=each.relay.revision,
        source=source,
    )


def _why_not(
    each: Registration,
    relay: Endpoints | None,
    imports: Mapping[Source, Endpoints],
    mode: str,
    suffixes: Suffixes,
) -> Unmatched:
    service = each.name + suffixes.relay
    if relay is not None and relay.bare:
        reason = "no_endpoints"
        text = f"{service} is imported without EndpointSlices and not from one cluster alone"
    elif relay is not None:
        reason = "relay_not_ready"
        text = f"{service} of {each.cluster_id} is imported, with {relay.total} endpoints and none ready"
    elif mode == KARMADA and len(service) > KARMADA_LIMIT:
        reason = "name_too_long"
        text = f"{service} has {len(service)} characters; Karmada imports at most {KARMADA_LIMIT}"
    elif others := sorted(
        source.cluster
        for source in imports
        if source.namespace == each.namespace
        and source.service == service
        and source.cluster != each.cluster_id
    ):
        reason = "cluster_id_differs"
        text = f"{service} is imported from {', '.join(others[:5])}; its relay says {each.cluster_id}"
    else:
        reason = "no_relay_import"
        text = f"no {service} is imported from {each.cluster_id} into namespace {each.namespace}"
    return Unmatched("registration", *_parts(each.key), reason, text)


def _strangers(
    registered: set[PoolKey], imports: Mapping[Source, Endpoints], suffixes: Suffixes
) -> Iterator[Unmatched]:
    for source in sorted(imports):
        name = source.service.removesuffix(suffixes.relay)
        if not name or name == source.service:
            continue
        key = PoolKey(source.cluster, source.namespace, name)
        if key in registered:
            continue
        others = sorted(
            k.cluster_id for k in registered if (k.namespace, k.name) == (key.namespace, key.name)
        )
        reason, text = "no_registration", "no relay has registered this pool, or its lease has ended"
        if others and not any(Source(o, source.namespace, source.service) in imports for o in others):
            reason = "cluster_id_differs"
            text = f"a relay of this pool has registered as of {', '.join(others[:5])}"
        yield Unmatched("import", *_parts(key), reason, text)


def _parts(key: PoolKey) -> tuple[str, str, str]:
    return key.cluster_id, key.namespace, key.name
