"""A relay on real sockets: what it learns of its frontends, and what it tells over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from isthmus.relay.planes import MAX_SUBSCRIBERS
from tests.support.eventually import eventually
from tests.support.relayfacts import DYNAMO, crew, options
from tests.support.relayrun import Frontend, TestRelay, events, fetch, relaying, serving


@pytest.fixture
async def relay() -> AsyncIterator[TestRelay]:
    async with relaying() as found:
        yield found


@pytest.fixture
async def frontend() -> AsyncIterator[Frontend]:
    async with serving(Frontend()) as found:
        yield found


async def models(relay: TestRelay, *expected: str) -> None:
    async def listed() -> None:
        status, body = await fetch(f"{relay.url}/v1/relay")
        assert (status, body["models"]) == (200, list(expected))

    await eventually(listed)


@pytest.mark.covers("PW-13", "RL-9", "RL-10", "RL-11")
async def test_pages_must_tell_identity_catalogue_readiness_and_load(
    relay: TestRelay, frontend: Frontend
) -> None:
    relay.see(frontend.door)
    await models(relay, "example/tiny")
    _, identity = await fetch(f"{relay.url}/v1/relay")
    incarnation = relay.view.options.incarnation
    assert {key: identity[key] for key in ("cluster_id", "namespace", "name", "protocol", "incarnation")} == {
        "cluster_id": "one",
        "namespace": "serving",
        "name": "east",
        "protocol": 1,
        "incarnation": incarnation,
    }
    _, catalog = await fetch(f"{relay.url}/v1/catalog")
    assert (catalog["incarnation"], catalog["status"]) == (incarnation, "complete")
    (entry,) = catalog["entries"]
    assert (entry["namespace"], entry["model"], entry["roles"]) == (DYNAMO, "example/tiny", ["aggregated"])
    _, readiness = await fetch(f"{relay.url}/v1/readiness")
    assert readiness["entries"] == [
        {
            "namespace": DYNAMO,
            "model": "example/tiny",
            "state": "READY",
            "present_roles": ["aggregated"],
            "missing_roles": [],
        }
    ]

    async def load() -> None:
        _, body = await fetch(f"{relay.url}/v1/load")
        assert body["status"] == "complete"
        assert 0 <= body["age_ms"] < 3000
        (found,) = body["entries"]
        assert (found["awaiting_first_token"], found["generating"]) == (1, 2)
        assert found["frontends"] == {"expected": 1, "observed": 1, "ready": 1}

    await eventually(load)


@pytest.mark.covers("PW-14")
async def test_page_must_be_unavailable_until_the_pool_has_been_seen(
    relay: TestRelay, frontend: Frontend
) -> None:
    for page in ("catalog", "readiness", "load"):
        status, body = await fetch(f"{relay.url}/v1/{page}")
        assert (status, body["error"]["code"]) == (503, "publication_unavailable")
        status, body = await fetch(f"{relay.url}/v1/{page}", watch="1")
        assert (status, body["error"]["code"]) == (503, "publication_unavailable")
    frontend.stuck = asyncio.Event()
    relay.see(frontend.door)

    async def asked() -> None:
        assert frontend.asked

    await eventually(asked)
    assert (await fetch(f"{relay.url}/v1/catalog"))[0] == 503, "unknown is not empty"
    frontend.stuck.set()
    await models(relay, "example/tiny")


@pytest.mark.covers("PW-14")
async def test_wrong_questions_must_get_their_codes(relay: TestRelay, frontend: Frontend) -> None:
    relay.see(frontend.door)
    await models(relay, "example/tiny")
    assert (await fetch(f"{relay.url}/v1/catalog", watch="2"))[0] == 400
    status, body = await fetch(f"{relay.url}/v1/nothing")
    assert (status, body["error"]["code"]) == (404, "not_found")
    status, body = await fetch(f"{relay.url}/v1/load", incarnation="another")
    assert (status, body["error"]["code"]) == (409, "producer_changed")
    assert (await fetch(f"{relay.url}/v1/load", incarnation=relay.view.options.incarnation))[0] == 200


@pytest.mark.covers("PW-13", "RL-9")
async def test_watcher_must_get_each_whole_state_and_a_clean_end() -> None:
    async with relaying() as relay, serving(Frontend()) as frontend:
        relay.see(frontend.door)
        await models(relay, "example/tiny")
        async with events(f"{relay.url}/v1/readiness") as following:
            first = await following()
            assert [entry["state"] for entry in first["entries"]] == ["READY"]
            relay.see(frontend.door, crews=(crew(ready=0),))
            second = await following()
            assert [entry["state"] for entry in second["entries"]] == ["UNAVAILABLE"]
            assert second["revision"] > first["revision"]
            relay.see()
            third = await following()
            assert [(entry["model"], entry["state"]) for entry in third["entries"]] == [
                ("example/tiny", "UNAVAILABLE")
            ]
            relay.view.readiness.close()
            assert await following() is None
        assert relay.view.readiness.subscribers == 0


@pytest.mark.covers("RL-14")
async def test_load_must_come_in_windows_of_a_second(relay: TestRelay, frontend: Frontend) -> None:
    relay.see(frontend.door)
    await models(relay, "example/tiny")
    loop = asyncio.get_running_loop()
    async with events(f"{relay.url}/v1/load") as following:
        first = await following()
        began = loop.time()
        windows = [await following() for _ in range(3)]
        assert [each["revision"] - first["revision"] for each in windows] == [1, 2, 3]
        assert 1.9 < loop.time() - began < 5.0


@pytest.mark.covers("RL-14", "PW-14")
async def test_watchers_beyond_the_limit_must_be_told_so(relay: TestRelay, frontend: Frontend) -> None:
    relay.see(frontend.door)
    await models(relay, "example/tiny")
    plane = relay.view.catalog
    plane.subscribers = MAX_SUBSCRIBERS
    status, body = await fetch(f"{relay.url}/v1/catalog", watch="1")
    assert (status, body["error"]["code"]) == (429, "resource_limit")
    assert (await fetch(f"{relay.url}/v1/readiness"))[0] == 200
    plane.subscribers = MAX_SUBSCRIBERS - 1
    async with events(f"{relay.url}/v1/catalog") as following:
        assert (await following())["entries"]
        assert (await fetch(f"{relay.url}/v1/catalog", watch="1"))[0] == 429

    async def free() -> None:
        assert plane.subscribers == MAX_SUBSCRIBERS - 1

    await eventually(free)
    plane.subscribers = 0


async def test_models_must_follow_what_frontends_list(relay: TestRelay, frontend: Frontend) -> None:
    relay.see(frontend.door)
    await models(relay, "example/tiny")
    frontend.models = ["b", "a"]
    await models(relay, "a", "b")
    revision = relay.view.revision
    async with serving(Frontend(models=["c"])) as other:
        relay.see(frontend.door, other.door)
        await models(relay, "a", "b", "c")
        assert relay.view.revision > revision
    await models(relay, "a", "b")
    assert relay.view.facts is not None
    assert relay.view.facts.status == "degraded"


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": 500},
        {"status": 302},
        {"body": b"<html>"},
        {"body": b'{"data":' + b"[" * 20_000},
        {"body": b'{"data":[]}' + b" " * (1 << 20)},
    ],
    ids=["error", "redirect", "html", "deep", "long"],
)
async def test_hostile_frontend_must_cost_nothing_but_itself(
    relay: TestRelay, frontend: Frontend, wrong: dict[str, object]
) -> None:
    async with serving(Frontend(models=["bad"])) as bad:
        for name, value in wrong.items():
            setattr(bad, name, value)
        relay.see(frontend.door, bad.door)
        await models(relay, "example/tiny")
        assert relay.view.facts is not None
        assert relay.view.facts.status == "degraded"
        assert [each.url for each in relay.view.facts.frontends] == [frontend.url]
        assert relay.view.heard[bad.url].problem


async def test_silent_frontend_must_be_given_up_and_taken_back(relay: TestRelay, frontend: Frontend) -> None:
    async with serving(Frontend(models=["slow"])) as slow:
        relay.see(frontend.door, slow.door)
        await models(relay, "example/tiny", "slow")
        slow.stuck = asyncio.Event()

        async def given_up() -> None:
            assert relay.view.facts is not None
            assert [each.url for each in relay.view.facts.frontends] == [frontend.url]

        await eventually(given_up, within_s=15)
        slow.stuck.set()
        await models(relay, "example/tiny", "slow")


@pytest.mark.covers("RL-11")
async def test_frontend_without_metrics_must_degrade_the_load(relay: TestRelay, frontend: Frontend) -> None:
    async with serving(Frontend(load=None)) as silent:
        relay.see(frontend.door, silent.door)

        async def degraded() -> None:
            status, body = await fetch(f"{relay.url}/v1/load")
            assert (status, body["status"]) == (200, "degraded")
            (entry,) = body["entries"]
            assert entry["frontends"] == {"expected": 2, "observed": 1, "ready": 2}
            assert entry["generating"] is None

        await eventually(degraded)


async def test_pool_without_frontends_must_be_told_as_such(relay: TestRelay) -> None:
    relay.see()

    async def told() -> None:
        status, body = await fetch(f"{relay.url}/v1/catalog")
        assert (status, body["entries"], body["status"]) == (200, [], "unavailable")

    await eventually(told)


async def test_aliases_and_limits_must_be_told_with_their_model(frontend: Frontend) -> None:
    told = options(aliases={"example/tiny": ("tiny",)}, max_concurrency=8)
    async with relaying(told) as relay:
        relay.see(frontend.door)
        await models(relay, "example/tiny")
        _, body = await fetch(f"{relay.url}/v1/catalog")
        assert [(entry["aliases"], entry["max_concurrency"]) for entry in body["entries"]] == [(["tiny"], 8)]
