"""What the cluster offers for gang scheduling: whether PodGroups are served, and which fields they keep.

The controller asks before each pass; runtime/optional.py follows the API as it comes and goes. The fields
are read from the API server's OpenAPI document, which needs no rights beyond those that everyone has, once
per coming of the API and again each FIELDS_S, since Volcano may be upgraded. While they cannot be read, what
is offered is not known, and nothing is changed in PodGroups: fields must not vanish because of a failed read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from isthmus import logs
from isthmus.api.meta import Resource
from isthmus.api.podgroups import POD_GROUPS
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.modelserving.plan.gang import FIELDS
from isthmus.modelserving.plan.model import NO_OFFER, Offer

log = logs.get(__name__)

FIELDS_S: Final = 600.0
"""Seconds after which the fields are read again."""
RETRY_S: Final = 5.0
"""Seconds after which they are after a failure: a new CRD takes a moment to show up in the document."""

UNKNOWN: Final = Offer(served=None)


class Api(Protocol):
    """The PodGroup API as it comes and goes (runtime.optional.OptionalApi)."""

    @property
    def known(self) -> bool:
        """Whether it is known what there is."""

    @property
    def served(self) -> Resource[Any] | None:
        """The version that is served."""

    def nudge(self) -> None:
        """Look again."""

    def subscribe(self, fn: Callable[[], None]) -> None:
        """Call `fn` when it has come or gone."""


class Reader(Protocol):
    """Whoever can read from the API server (kube.client.Client)."""

    async def get_raw(self, path: str) -> bytes:
        """The body at this path."""


class GangApi:
    """See the module."""

    def __init__(self, api: Api, client: Reader, clock: Clock) -> None:
        self._api = api
        self._client = client
        self._clock = clock
        self._offer = UNKNOWN
        self._due = 0.0
        self._read = 0.0
        api.subscribe(self._changed)

    def gone(self) -> None:
        """A request was told that there is no such API."""
        self._api.nudge()

    def doubt(self) -> None:
        """A write changed nothing that should have: the fields may be others by now. Read them again, but not
        at once again."""
        self._due = min(self._due, self._read + RETRY_S)

    async def offer(self) -> Offer:
        """What the cluster offers now. Never raises because of the cluster: then nothing is known."""
        if not self._api.known:
            return UNKNOWN
        resource = self._api.served
        if resource is None:
            return NO_OFFER
        now = self._clock.monotonic()
        if now >= self._due:
            self._read, self._due = now, now + FIELDS_S
            try:
                self._offer = Offer(served=True, fields=await self._fields(resource))
            except (IsthmusError, LookupError, msgspec.MsgspecError) as error:
                log.warning("cannot see which fields PodGroups have", error=str(error))
                self._due = now + RETRY_S
        return self._offer

    def _changed(self) -> None:
        self._offer, self._due = UNKNOWN, 0.0

    async def _fields(self, resource: Resource[Any]) -> dict[str, Any]:
        path = f"/openapi/v3/apis/{resource.group}/{resource.version}"
        return fields_of(await self._client.get_raw(path), resource.kind)


class _Kind(msgspec.Struct, gc=False):
    kind: str = ""


class _Schema(msgspec.Struct, gc=False):
    """What is read of a schema."""

    properties: dict[str, _Schema] = {}
    items: _Schema | None = None
    default: Any = None
    kinds: list[_Kind] = msgspec.field(name="x-kubernetes-group-version-kind", default_factory=list)


class _Components(msgspec.Struct, gc=False):
    schemas: dict[str, _Schema]


class _Document(msgspec.Struct, gc=False):
    components: _Components


def fields_of(document: bytes, kind: str = POD_GROUPS.kind) -> dict[str, Any]:
    """The fields of Offer that a kind's spec has, each with its default or None, from an OpenAPI document.
    Raises MsgspecError where it is none, LookupError where it does not have the kind."""
    for schema in msgspec.json.decode(document, type=_Document).components.schemas.values():
        if any(each.kind == kind for each in schema.kinds):
            found = _paths(schema.properties["spec"], "")
            return {path: found[path] for path in FIELDS if path in found}
    raise LookupError(f"no {kind} in the OpenAPI document")


def _paths(schema: _Schema, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in schema.properties.items():
        path = f"{prefix}{name}"
        found[path] = field.default
        found |= _paths(field.items or field, f"{path}.")
    return found
