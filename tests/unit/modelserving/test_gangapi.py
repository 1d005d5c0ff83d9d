"""What the cluster offers for gang scheduling, as its API comes and goes and its OpenAPI document says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from isthmus.api.meta import Raw, Resource
from isthmus.api.podgroups import POD_GROUPS
from isthmus.errors import WorldError
from isthmus.kube.errors import NotFound
from isthmus.modelserving.gangapi import FIELDS_S, RETRY_S, UNKNOWN, GangApi, fields_of
from isthmus.modelserving.plan.gang import FULL_OFFER
from isthmus.modelserving.plan.model import NO_OFFER
from isthmus.sandbox.volcano import pod_groups
from tests.support.clock import FakeClock


def document(*, sub_groups: bool = True) -> Raw:
    """What the API server publishes of that CRD."""
    version = pod_groups(sub_groups=sub_groups)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"] | {
        "x-kubernetes-group-version-kind": [{"group": "x", "version": "v1beta1", "kind": "PodGroup"}]
    }
    return {"components": {"schemas": {"other": {"properties": {}}, "sh.volcano.PodGroup": schema}}}


class Api:
    """An API that the test lets come and go, and its API server."""

    def __init__(self) -> None:
        self.known = True
        self.served: Resource[Any] | None = POD_GROUPS
        self.nudges = 0
        self.reads = 0
        self.answer: Any = document()
        self.clock = FakeClock()
        self._tell: list[Callable[[], None]] = []
        self.gang = GangApi(self, self, self.clock)

    def nudge(self) -> None:
        self.nudges += 1

    def subscribe(self, fn: Callable[[], None]) -> None:
        self._tell.append(fn)

    def change(self, served: Resource[Any] | None) -> None:
        self.served = served
        for fn in self._tell:
            fn()

    async def get_raw(self, path: str) -> bytes:
        assert path == "/openapi/v3/apis/scheduling.volcano.sh/v1beta1"
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return msgspec.json.encode(self.answer)


@pytest.mark.covers("MS-90")
def test_fields_must_be_those_of_the_served_schema() -> None:
    assert fields_of(msgspec.json.encode(document())) == {
        **FULL_OFFER.fields,
        "queue": "default",
        "networkTopology.mode": "hard",
    } | {"subGroupPolicy.networkTopology.mode": "hard"}
    older = fields_of(msgspec.json.encode(document(sub_groups=False)))
    assert "networkTopology.highestTierAllowed" in older
    assert not [path for path in older if path.startswith("subGroupPolicy")]


def test_document_without_the_kind_must_be_an_error() -> None:
    with pytest.raises(LookupError):
        fields_of(b'{"components": {"schemas": {}}}')


@pytest.mark.covers("MS-90", "R11")
async def test_absent_api_must_offer_nothing_and_not_be_read() -> None:
    api = Api()
    api.served = None
    assert await api.gang.offer() is NO_OFFER
    api.known = False
    assert await api.gang.offer() is UNKNOWN
    assert api.reads == 0


async def test_fields_must_be_read_once_and_again_after_a_while() -> None:
    api = Api()
    offers = [await api.gang.offer() for _ in range(3)]
    assert offers[0].served
    assert api.reads == 1
    await api.clock.advance(FIELDS_S)
    api.answer = document(sub_groups=False)
    assert (await api.gang.offer()).fields.keys() < offers[0].fields.keys()
    assert api.reads == 2


@pytest.mark.covers("R11")
@pytest.mark.parametrize(
    "answer",
    [WorldError("no"), NotFound(404), {"components": {}}, {"components": {"schemas": []}}, ["?"], None],
)
async def test_fields_that_cannot_be_read_must_leave_the_offer_unknown_until_they_can(answer: Any) -> None:
    api = Api()
    api.answer = answer
    assert await api.gang.offer() is UNKNOWN
    assert await api.gang.offer() is UNKNOWN
    assert api.reads == 1
    api.answer = document()
    await api.clock.advance(RETRY_S)
    assert (await api.gang.offer()).served


async def test_doubt_must_bring_the_next_read_forward() -> None:
    api = Api()
    for _ in range(3):
        api.gang.doubt()
        await api.gang.offer()
    assert api.reads == 1
    await api.clock.advance(RETRY_S)
    await api.gang.offer()
    assert api.reads == 2


async def test_failed_second_read_must_keep_what_is_known() -> None:
    api = Api()
    known = await api.gang.offer()
    api.answer = WorldError("no")
    await api.clock.advance(FIELDS_S)
    assert await api.gang.offer() is known


@pytest.mark.covers("R11")
async def test_api_that_comes_back_must_be_read_anew() -> None:
    api = Api()
    await api.gang.offer()
    api.change(None)
    assert await api.gang.offer() is NO_OFFER
    api.answer = document(sub_groups=False)
    api.change(POD_GROUPS)
    assert not [path for path in (await api.gang.offer()).fields if path.startswith("subGroupPolicy")]


def test_news_that_it_is_gone_must_reach_who_watches_for_that() -> None:
    api = Api()
    api.gang.gone()
    assert api.nudges == 1
