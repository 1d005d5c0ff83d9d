"""EndpointSlices of a graph, or entry pods of a ModelServing -> who belongs to the pool now.

The relay calls it at each change of its caches. Of a graph a slice's labels are its Service's: the component,
its type and its Dynamo namespace (GD-16). A frontend counts once, however many slices and address families
have it. Only what is ready and not about to go takes requests (DS-15).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from isthmus.api.dynamo.analysis import FRONTEND
from isthmus.api.dynamo.names import COMPONENT, COMPONENT_TYPE, NAMESPACE, dynamo_namespace
from isthmus.api.endpointslices import Endpoint, EndpointSlice
from isthmus.api.entrypods import EntryPod
from isthmus.api.pools import MAX_ITEMS, endpoint_url
from isthmus.relay.plan.model import AGGREGATED, TYPED, Crew, Door, Roster, Selection

PORT: Final = "http"
"""The name of the port of frontends."""
SUFFIX: Final = "-frontend"
"""What a frontend's Service is called where no label says what it is (PR-39)."""
_ROLES: Final = {"worker": AGGREGATED, "prefill": "prefill", "decode": "decode"}
_FAMILIES: Final = ("IPv4", "IPv6")


def of_slices(slices: Iterable[EndpointSlice], selection: Selection) -> Roster:
    """The pool of a graph."""
    doors: dict[str, Door] = {}
    crews: dict[tuple[str, str, str], dict[str, bool]] = {}
    namespaces = set()
    own = dynamo_namespace(selection.namespace, selection.name)
    for each in sorted(slices, key=lambda each: (_FAMILIES.index(_family(each)), each.key)):
        labels = each.metadata.labels
        namespace = labels.get(NAMESPACE) or own
        if selection.namespaces and namespace not in selection.namespaces:
            continue
        kind, component = labels.get(COMPONENT_TYPE, ""), labels.get(COMPONENT, each.service).lower()
        if kind == FRONTEND or kind in _ROLES:
            namespaces.add(namespace)
        if kind == FRONTEND or (not kind and each.service.endswith(SUFFIX)):
            _add_doors(doors, each, selection)
        elif kind in _ROLES and _is_chosen(f"{namespace}.{component}", selection):
            crew = crews.setdefault((namespace, component, _ROLES[kind]), {})
            for endpoint in each.all:
                name = _who(endpoint)
                crew[name] = crew.get(name, False) or endpoint.ready
    return _roster(doors, crews, namespaces)


def of_pods(pods: Iterable[EntryPod], selection: Selection) -> Roster:
    """The pool of a ModelServing. A role called prefill, decode or encode does that part of the work; every
    other does all of it, unless there are such roles, and then it only takes requests."""
    own = dynamo_namespace(selection.namespace, selection.name)
    known = sorted((each for each in pods if each.status.pod_ip), key=lambda each: each.key)
    typed = any(_role(each) in TYPED for each in known)
    doors: dict[str, Door] = {}
    crews: dict[tuple[str, str, str], dict[str, bool]] = {}
    for pod in known:
        role = _role(pod)
        if role in TYPED or not typed:
            crews.setdefault((own, pod.role, role), {})[pod.metadata.name] = pod.ready
        chosen = pod.role in selection.frontend_roles if selection.frontend_roles else role not in TYPED
        if chosen and pod.ready:
            url = endpoint_url("http", pod.status.pod_ip, pod.port(PORT) or selection.port)
            doors[pod.metadata.name] = Door(url=url, service=pod.metadata.name)
    return _roster(doors, crews, set())


def _role(pod: EntryPod) -> str:
    role = pod.role.lower()
    return role if role in TYPED else AGGREGATED


def _family(each: EndpointSlice) -> str:
    return each.address_type if each.address_type in _FAMILIES else _FAMILIES[-1]


def _add_doors(doors: dict[str, Door], each: EndpointSlice, selection: Selection) -> None:
    if each.address_type not in _FAMILIES:
        return
    port = each.port(PORT) or selection.port
    for endpoint in each.all:
        if endpoint.ready and endpoint.addresses:
            url = endpoint_url("http", endpoint.addresses[0], port)
            door = Door(url=url, service=each.service, zone=endpoint.zone)
            doors.setdefault(f"{each.service}/{_who(endpoint)}", door)


def _who(endpoint: Endpoint) -> str:
    """What is behind an endpoint, the same in each slice that has it."""
    target = endpoint.target_ref
    if target is not None and target.name:
        return f"{target.kind}/{target.name}"
    return endpoint.addresses[0] if endpoint.addresses else ""


def _is_chosen(name: str, selection: Selection) -> bool:
    return not selection.prefixes or name.startswith(selection.prefixes)


def _roster(
    doors: dict[str, Door], crews: dict[tuple[str, str, str], dict[str, bool]], namespaces: set[str]
) -> Roster:
    ordered = tuple(sorted({each.url: each for each in doors.values()}.values()))
    return Roster(
        doors=ordered[:MAX_ITEMS],
        left_out=len(ordered) - len(ordered[:MAX_ITEMS]),
        crews=tuple(
            sorted(
                Crew(
                    namespace=namespace,
                    component=component,
                    role=role,
                    total=len(members),
                    ready=sum(members.values()),
                )
                for (namespace, component, role), members in crews.items()
            )
        ),
        namespaces=tuple(sorted(namespaces)),
    )
