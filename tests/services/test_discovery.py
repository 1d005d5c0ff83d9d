"""The discovery service over real sockets: registering, listing, leases, what is refused (PW-1 to PW-8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from isthmus.api.pools import RouterRef
from isthmus.discovery.routes import Granting
from tests.support.clock import FakeClock
from tests.support.discoveries import registration
from tests.support.discoveryrun import Asking, Running, discovering
from tests.support.eventually import until
from tests.support.http import parse_answers, request_bytes, talk

PATH = "/pools/east/serving/chat"


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def running(clock: FakeClock) -> AsyncIterator[Running]:
    async with discovering(clock) as found:
        yield found


@pytest.fixture
async def asking(running: Running) -> Asking:
    return running.asking


def changed(**fields: Any) -> bytes:
    """A registration's body with other fields; a dotted name is a field of a field."""
    body: dict[str, Any] = json.loads(msgspec.json.encode(registration()))
    for name, value in fields.items():
        inner = body
        *path, last = name.split("__")
        for part in path:
            inner = inner[part]
        inner[last] = value
    return json.dumps(body).encode()


@pytest.mark.covers("PW-1", "PW-2", "PW-7")
async def test_registration_must_be_granted_and_listed(asking: Asking, clock: FakeClock) -> None:
    granted = await asking.register(registration())
    assert (granted.status, granted.json) == (
        201,
        {
            "pool_id": registration().key.pool_id,
            "heartbeat_interval_secs": 5.0,
            "lease_duration_secs": 15.0,
            "routers": [],
            "complete": False,
        },
    )
    assert (await asking.register(registration())).status == 200
    await clock.advance(0.1)
    listed = await asking.get("/pools")
    assert (listed.json["schema"], listed.json["mode"], listed.json["complete"]) == (
        1,
        "registrations",
        False,
    )
    (pool,) = listed.pools.pools
    assert pool.relay_urls == ("http://east.example:5561",)
    assert pool.frontend_urls == ("http://east.example:8000",)
    assert pool.expires_in_secs == pytest.approx(14.9, abs=0.11)


@pytest.mark.covers("PW-7")
async def test_list_must_be_sorted_and_be_cut_down_to_what_was_asked_for(
    asking: Asking, clock: FakeClock
) -> None:
    for cluster, name in (("west", "b"), ("east", "b"), ("west", "a")):
        await asking.register(registration(cluster, name))
    await clock.advance(0.1)
    assert await asking.names() == ["east/serving/b", "west/serving/a", "west/serving/b"]
    west = (await asking.get("/pools?cluster_id=west")).pools.pools
    assert [pool.name for pool in west] == ["a", "b"]
    assert len((await asking.get("/pools?model=example%2Ftiny&cluster_id=east")).pools.pools) == 1
    assert (await asking.get("/pools?model=other")).pools.pools == ()


@pytest.mark.covers("PW-7")
async def test_version_must_change_exactly_when_the_list_does(asking: Asking, clock: FakeClock) -> None:
    await asking.register(registration())
    await clock.advance(0.1)
    first = await asking.get("/pools")
    assert first.headers["etag"] == f'"{first.json["version"]}"'
    unchanged = {"If-None-Match": first.headers["etag"]}
    await clock.advance(4.0)
    await asking.register(registration())
    await clock.advance(0.1)
    again = await asking.get("/pools", headers=unchanged)
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await asking.register(registration(revision=2))
    await clock.advance(0.1)
    assert (await asking.get("/pools", headers=unchanged)).status == 200


@pytest.mark.covers("D-9", "DS-3", "PW-8")
async def test_list_must_be_complete_after_one_lease_and_not_before(asking: Asking, clock: FakeClock) -> None:
    await clock.advance(14.9)
    assert not (await asking.get("/pools")).pools.complete
    await clock.advance(1.2)  # it is looked at once a second
    found = (await asking.get("/pools")).pools
    assert (found.complete, found.pools) == (True, ())


@pytest.mark.covers("D-10", "PW-6")
async def test_lease_must_take_the_pool_with_it_and_be_kept_by_renewal(
    asking: Asking, clock: FakeClock
) -> None:
    await asking.register(registration("east"))
    await asking.register(registration("west"))
    await clock.advance(10.0)
    await asking.register(registration("west"))
    await clock.advance(4.9)
    assert await asking.names() == ["east/serving/chat", "west/serving/chat"]
    await clock.advance(0.2)
    assert await asking.names() == ["west/serving/chat"]


@pytest.mark.covers("D-11", "PW-2")
async def test_run_that_was_replaced_must_be_refused(asking: Asking) -> None:
    await asking.register(registration(run="old"))
    assert (await asking.register(registration(run="new"))).status == 201
    refused = await asking.register(registration(run="old"))
    assert (refused.status, refused.code) == (409, "stale_incarnation")
    await asking.register(registration(run="new", revision=7))
    refused = await asking.register(registration(run="new", revision=6))
    assert (refused.status, refused.code) == (409, "stale_revision")


@pytest.mark.covers("D-12", "PW-5")
async def test_withdrawal_must_be_of_the_run_that_holds_the_pool(asking: Asking, clock: FakeClock) -> None:
    assert (await asking.ask("DELETE", f"{PATH}?incarnation=a")).status == 404
    await asking.register(registration(run="a"))
    await clock.advance(0.1)
    refused = await asking.ask("DELETE", f"{PATH}?incarnation=b")
    assert (refused.status, refused.code) == (409, "other_incarnation")
    assert (await asking.ask("DELETE", f"{PATH}?incarnation=a")).status == 204
    await clock.advance(0.1)
    assert await asking.names() == []
    assert (await asking.ask("DELETE", f"{PATH}?incarnation=a")).code == "unknown"


@pytest.mark.covers("PW-3", "DS-5", "DS-7")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"schema": 2}, "schema"),
        ({"cluster_id": ""}, "cluster_id"),
        ({"cluster_id": " east"}, "cluster_id"),
        ({"cluster_id": "ea\nst"}, "cluster_id"),
        ({"namespace": "name/space"}, "namespace"),
        ({"name": "chat.v2"}, "name"),
        ({"name": "c" * 64}, "name"),
        ({"relay__url": "ftp://a"}, "relay.url"),
        ({"relay__url": "http://u:p@a"}, "relay.url"),
        ({"relay__url": "http://a?b=c"}, "relay.url"),
        ({"relay__revision": -1}, "relay.revision"),
        ({"relay__revision": "1"}, "relay.revision"),
        ({"relay__incarnation": ""}, "relay.incarnation"),
        ({"models": [{"id": "a"}, {"id": "b", "aliases": ["a"]}]}, "models[1].aliases[0]"),
        ({"models": [{"id": f"m{index}"} for index in range(257)]}, "models"),
        ({"models": None}, "models"),
        ({"frontends": [{"url": "http://a#b"}]}, "frontends[0].url"),
        ({"location": {"region": "x" * 254}}, "location.region"),
        ({"relay": None}, "relay"),
    ],
)
async def test_field_that_cannot_be_used_must_be_named(
    asking: Asking, fields: dict[str, Any], named: str
) -> None:
    refused = await asking.post(changed(**fields))
    assert (refused.status, refused.code) == (400, "invalid_field")
    assert refused.json["error"]["field"] == named
    assert named in refused.json["error"]["message"]
    assert await asking.names() == []


@pytest.mark.covers("PW-1", "PW-3")
async def test_unknown_keys_and_missing_models_must_be_accepted(asking: Asking, clock: FakeClock) -> None:
    assert (await asking.post(changed(models=[], future={"a": 1}))).status == 201
    await clock.advance(0.1)
    assert (await asking.get("/pools")).pools.pools[0].models == ()


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_field"),
        (b"", "application/json", 400, "invalid_field"),
        (b"[" * 100_000, "application/json", 400, "invalid_field"),
        (b'"\xff"', "application/json", 400, "invalid_field"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b" " * ((1 << 20) + 1), "application/json", 413, ""),
    ],
)
async def test_hostile_body_must_get_an_answer_with_a_code(
    asking: Asking, body: bytes, kind: str, status: int, code: str
) -> None:
    refused = await asking.post(body, kind=kind)
    assert refused.status == status
    assert refused.code == code or not code


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("PUT", "/pools", 405), ("GET", PATH, 405), ("DELETE", "/pools/a/b", 404)],
)
async def test_path_or_method_that_is_not_there_must_have_the_same_form(
    asking: Asking, method: str, path: str, status: int
) -> None:
    refused = await asking.ask(method, path)
    assert (refused.status, set(refused.json)) == (status, {"error"})
    assert refused.json["error"]["message"]


@pytest.mark.covers("PW-10", "DS-4")
async def test_routers_must_be_told_to_relays_and_to_whoever_asks(clock: FakeClock) -> None:
    routers = (RouterRef(id="r1", url="http://router:8000"),)
    async with discovering(clock, granting=Granting(routers=routers)) as running:
        told = [{"id": "r1", "url": "http://router:8000"}]
        assert (await running.asking.register(registration())).json["routers"] == told
        assert (await running.asking.get("/routers")).json == {"routers": told, "complete": True}


@pytest.mark.covers("PW-9")
async def test_who_waits_for_another_list_must_get_it_when_it_comes(asking: Asking, clock: FakeClock) -> None:
    known = (await asking.get("/pools")).json["version"]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(asking.get(f"/pools?wait_secs=30&version={known}"))
        await clock.advance(1.0)
        assert not waiting.done()
        await asking.register(registration())
        await clock.advance(0.1)
    assert len(waiting.result().pools.pools) == 1
    assert (await asking.get(f"/pools?wait_secs=30&version={known}")).status == 200


@pytest.mark.covers("PW-9")
async def test_who_waits_in_vain_must_be_told_so_in_time(asking: Asking, clock: FakeClock) -> None:
    await clock.advance(20.0)
    listed = await asking.get("/pools")
    headers = {"If-None-Match": listed.headers["etag"]}
    async with asyncio.TaskGroup() as group:
        path = f"/pools?wait_secs=3&version={listed.json['version']}"
        waiting = group.create_task(asking.get(path, headers=headers))
        while not waiting.done():
            await asyncio.sleep(0.01)
            await clock.advance(1.0)
    assert waiting.result().status == 304


@pytest.mark.parametrize("seconds", ["x", "-1", "61", "nan", "inf"])
async def test_time_to_wait_must_be_a_sensible_number(asking: Asking, seconds: str) -> None:
    assert (await asking.get(f"/pools?wait_secs={seconds}")).code == "invalid_field"


@pytest.mark.covers("PW-11")
async def test_probes_and_metrics_must_say_how_it_is(asking: Asking, clock: FakeClock) -> None:
    assert (await asking.get("/healthz")).status == 200
    assert (await asking.get("/readyz")).status == 200
    await asking.register(registration())
    await asking.register(registration())
    await asking.post(b"{")
    await clock.advance(0.1)
    assert await asking.metric('gds_registrations_total{result="new"}') == 1
    assert await asking.metric('gds_registrations_total{result="renewed"}') == 1
    assert await asking.metric('gds_registrations_total{result="invalid_field"}') == 1
    assert await asking.metric('gds_pools{state="routable"}') == 1
    text = (await asking.get("/metrics")).body.decode()
    for name in ("gds_unmatched_registrations", "gds_unmatched_imports", "gds_watchers", "gds_complete"):
        assert f"\n{name} " in text


@pytest.mark.covers("PW-7")
async def test_list_must_be_encoded_once_for_all_its_readers(running: Running, clock: FakeClock) -> None:
    await running.asking.register(registration())
    await clock.advance(0.1)
    before = running.discovery.service.encoded
    for _ in range(20):
        await running.asking.get("/pools")
    assert running.discovery.service.encoded == before + 1


async def test_lists_that_are_kept_for_readers_must_be_bounded(running: Running, clock: FakeClock) -> None:
    for number in range(200):
        await running.asking.get(f"/pools?model=m{number}")
    assert len(running.discovery.service._bodies) <= 64


async def test_requests_of_another_form_must_get_its_error(running: Running) -> None:
    raw = await talk(running.port, b"GET /pools HTTP/1.1\r\n\r\n")
    (answer,) = parse_answers(raw)
    assert (answer.status, set(answer.json["error"])) == (400, {"code", "message"})


async def test_service_that_ends_must_answer_who_waits(clock: FakeClock) -> None:
    async with discovering(clock) as running:
        version = running.discovery.service.listing.version
        target = f"/pools?wait_secs=60&version={version}"
        waiting = asyncio.get_running_loop().create_task(  # ended below
            talk(running.port, request_bytes("GET", target))
        )
        await until(lambda: any(each._answering for each in running.discovery.listener._connections))
    (answer,) = parse_answers(await waiting)
    assert answer.status == 200
