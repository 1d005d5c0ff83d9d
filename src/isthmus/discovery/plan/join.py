"""Registrations and imports joined into pools, and what does not match and why (DS-9 to DS-17, PW-12).

A pool needs a live registration and, in the modes that import, a ready endpoint of its relay's Service from
the cluster of its own cluster ID, in its own namespace (DS-10, DS-14). Names are put together from the
registration's, never taken apart, so that no name can be read in two ways (DS-17).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from isthmus.api.karmada import NAME_LIMIT
from isthmus.api.pools import Pool, PoolKey, Registration
from isthmus.discovery.plan.imports import Endpoints, Source

REGISTRATIONS, MCS, KARMADA = "registrations", "mcs", "karmada"
MODES: Final = (REGISTRATIONS, MCS, KARMADA)
RELAY_PORT, FRONTEND_PORT = "grpc", "http"
DIFFERS: Final = "cluster_id_differs"


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
    keys = {each.key for each in registered}
    strangers = _strangers(keys, imports, suffixes)
    pools: list[Pool] = []
    unmatched: list[Unmatched] = []
    for each in registered:
        relay = imports.get(Source(each.cluster_id, each.namespace, each.name + suffixes.relay))
        if relay is not None and relay.grpc:
            pools.append(_imported(each, relay, imports, suffixes))
        else:
            others = strangers.get((each.namespace, each.name), ())
            unmatched.append(_why_not(each, relay, others, mode, suffixes))
    missing = {(each.namespace, each.name): each.cluster_id for each in unmatched if each.reason == DIFFERS}
    unmatched += _unregistered(strangers, missing)
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
    return _pool(each, relay.urls(RELAY_PORT), frontend.urls(FRONTEND_PORT), "registration+import")


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


def _strangers(
    registered: set[PoolKey], imports: Mapping[Source, Endpoints], suffixes: Suffixes
) -> dict[tuple[str, str], list[str]]:
    """The clusters of imported relays that nobody has registered, by (namespace, name of the pool)."""
    found: dict[tuple[str, str], list[str]] = {}
    for source, endpoints in imports.items():
        name = source.service.removesuffix(suffixes.relay)
        if not name or name == source.service or endpoints.left_over:
            continue
        if PoolKey(source.cluster, source.namespace, name) not in registered:
            found.setdefault((source.namespace, name), []).append(source.cluster)
    return {key: sorted(clusters) for key, clusters in sorted(found.items())}


def _why_not(
    each: Registration, relay: Endpoints | None, others: Sequence[str], mode: str, suffixes: Suffixes
) -> Unmatched:
    """`others`: clusters from which a relay of that name is imported that has not registered."""
    service = each.name + suffixes.relay
    if relay is not None and not (relay.left_over and others):
        reason, text = _why_unusable(service, each.cluster_id, relay)
    elif mode == KARMADA and len(service) > NAME_LIMIT:
        reason = "name_too_long"
        text = f"{service} has {len(service)} characters; Karmada imports at most {NAME_LIMIT}"
    elif others:
        reason = DIFFERS
        text = f"{service} is imported from {_some(others)}; its relay says {each.cluster_id}"
    else:
        reason = "no_relay_import"
        text = f"no {service} is imported from {each.cluster_id} into namespace {each.namespace}"
    return Unmatched("registration", *_parts(each.key), reason, text)


def _why_unusable(service: str, cluster: str, relay: Endpoints) -> tuple[str, str]:
    """The reason, and a text, why an import gives no address of the relay."""
    if relay.left_over:
        return "import_withdrawn", (
            f"EndpointSlices of {service} from {cluster} are left over: no ServiceImport lists that cluster"
        )
    if relay.bare:
        return "no_endpoints", f"{service} is imported without EndpointSlices and not from {cluster} alone"
    if relay.ready:
        return "no_port", f"{service} of {cluster} has several ports, and none named {RELAY_PORT}"
    return "relay_not_ready", (
        f"{service} of {cluster} is imported, with {relay.total} endpoints and none ready"
    )


def _unregistered(
    strangers: Mapping[tuple[str, str], Sequence[str]], missing: Mapping[tuple[str, str], str]
) -> Iterator[Unmatched]:
    """`missing`: the cluster that a relay without an import says, by the pool's namespace and name."""
    for (namespace, name), clusters in strangers.items():
        other = missing.get((namespace, name))
        reason, text = "no_registration", "no relay has registered this pool, or its lease has ended"
        if other is not None:
            reason, text = DIFFERS, f"a relay of a pool of this name has registered as of {other}"
        for cluster in clusters:
            yield Unmatched("import", cluster, namespace, name, reason, text)


def _some(clusters: Sequence[str]) -> str:
    return ", ".join(clusters[:5]) + (" and others" if len(clusters) > 5 else "")


def _parts(key: PoolKey) -> tuple[str, str, str]:
    return key.cluster_id, key.namespace, key.name
