"""The shared store on a real Redis server: replicas, restarts, a server that is away (DS-2, DS-3)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.pools import Registration
from isthmus.clock import SystemClock
from isthmus.discovery import redis_scripts as scripts
from isthmus.discovery.app import RedisOptions
from isthmus.discovery.plan.leases import Leases, Verdict
from isthmus.discovery.routes import Granting
from isthmus.discovery.store import StoreUnavailable
from isthmus.discovery.store_redis import STALE_S, RedisStore
from isthmus.errors import UserError
from tests.support.clock import FakeClock
from tests.support.discoveries import registration
from tests.support.discoveryrun import Asking, Running, discovering
from tests.support.eventually import eventually
from tests.support.redisserver import RedisServer, redis_server

LEASE_S = 30.0
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as found:
        yield found


@asynccontextmanager
async def replica(server: RedisServer, *, lease_s: float = LEASE_S) -> AsyncIterator[Running]:
    granting = Granting(heartbeat_s=lease_s / 3, lease_s=lease_s)
    async with discovering(redis=RedisOptions(url=server.url), granting=granting) as running:
        await until_ready(running.asking)
        yield running


async def until_ready(asking: Asking, status: int = 200) -> None:
    async def check() -> None:
        assert (await asking.get("/readyz")).status == status

    await eventually(check, within_s=15)


async def until_listed(asking: Asking, *names: str, within_s: float = 15) -> None:
    async def check() -> None:
        assert await asking.names() == [f"{name}/serving/chat" for name in names]

    await eventually(check, within_s=within_s)


@asynccontextmanager
async def storing(server: RedisServer, clock: Any = None, *, lease_s: float = LEASE_S) -> AsyncIterator[Any]:
    """A store alone, that reads when it is told to."""
    store = RedisStore(server.url, "t:", lease_s, clock or SystemClock())
    try:
        yield store
    finally:
        await store._redis.aclose()


def names(store: RedisStore) -> list[str]:
    return sorted(held.registration.cluster_id for held in store.live())


@pytest.mark.covers("DS-2", "PW-2")
async def test_replicas_must_share_one_list_and_the_same_version_of_it(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        assert (await one.asking.register(registration("east"))).status == 201
        assert (await two.asking.register(registration("east"))).status == 200
        assert (await two.asking.register(registration("west"))).status == 201
        for each in (one, two):
            await until_listed(each.asking, "east", "west")
        versions = {(await each.asking.get("/pools")).json["version"] for each in (one, two)}
        assert len(versions) == 1
        assert (await two.asking.register(registration("east", run="b"))).status == 201
        assert (await one.asking.register(registration("east", run="a"))).code == "stale_incarnation"
        assert (await one.asking.ask("DELETE", "/pools/east/serving/chat?incarnation=a")).status == 409
        assert (await one.asking.ask("DELETE", "/pools/east/serving/chat?incarnation=b")).status == 204
        for each in (one, two):
            await until_listed(each.asking, "west")


@pytest.mark.covers("DS-2", "DS-3")
async def test_list_must_be_whole_after_replicas_and_server_have_started_anew(server: RedisServer) -> None:
    async with replica(server) as first, server.client() as client:
        await first.asking.register(registration("east"))
        for name in ("born", "seen"):
            assert int(await client.get(f"isthmus:{{pools}}:{name}"))
        await client.decrby("isthmus:{pools}:born", 60_000)  # as if it had run for a minute

        async def is_complete() -> None:
            assert (await first.asking.get("/pools")).pools.complete

        await eventually(is_complete)
    async with replica(server) as second:
        await until_listed(second.asking, "east", within_s=2)
        assert (await second.asking.get("/pools")).pools.complete
    await server.stop()
    await server.start()
    async with replica(server) as third:
        await until_listed(third.asking, "east")


async def test_pool_must_be_listed_at_once_where_its_relay_has_registered(server: RedisServer) -> None:
    async with storing(server) as store:
        await store.read()
        await store.put(registration())
        assert names(store) == ["east"]
        await store.remove(registration().key, "a")
        assert names(store) == []


@pytest.mark.covers("PW-2", "PW-11", "DS-4")
async def test_server_that_is_away_must_leave_the_list_and_be_said(server: RedisServer) -> None:
    async with replica(server) as running:
        asking = running.asking
        await asking.register(registration("east"))
        await until_listed(asking, "east")
        await server.stop()
        refused = await asking.register(registration("west"))
        assert (refused.status, refused.code) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert (await asking.ask("DELETE", "/pools/east/serving/chat")).status == 503
        await until_ready(asking, 503)
        assert b"store" in (await asking.get("/readyz")).body
        listed = (await asking.get("/pools")).pools
        assert ([pool.cluster_id for pool in listed.pools], listed.complete) == (["east"], False)
        assert (await asking.get("/healthz")).status == 200
        await server.start()
        await until_ready(asking)
        assert (await asking.register(registration("west"))).status == 201
        await until_listed(asking, "east", "west")


async def test_leases_must_stand_still_while_the_server_is_away(server: RedisServer) -> None:
    clock = FakeClock()
    async with storing(server, clock) as store:
        await store.read()
        await store.put(registration())
        await store.read()
        (held,) = store.live()
        await server.stop()
        await clock.advance(STALE_S)
        assert store.problem() is None
        await clock.advance(10 * LEASE_S)
        assert store.problem() is not None
        (still,) = store.live()
        left_s = held.expires_s - (clock.monotonic() - 10 * LEASE_S)
        assert still.expires_s - clock.monotonic() == pytest.approx(left_s, abs=0.1)


@pytest.mark.covers("PW-2")
async def test_server_that_says_nothing_must_be_given_up_in_time(server: RedisServer) -> None:
    async with replica(server) as running:
        with server.stuck():
            began = asyncio.get_running_loop().time()
            refused = await running.asking.register(registration())
            assert (refused.status, refused.code) == (503, "unavailable")
            assert asyncio.get_running_loop().time() - began < 6
            await until_ready(running.asking, 503)
        await until_ready(running.asking)
        assert (await running.asking.register(registration())).status in (200, 201)


@pytest.mark.covers("DS-2", "PW-6")
async def test_lease_must_end_on_every_replica(server: RedisServer) -> None:
    async with replica(server, lease_s=4.0) as one, replica(server, lease_s=4.0) as two:
        await one.asking.register(registration())
        for each in (one, two):
            await until_listed(each.asking, "east", within_s=3.5)
        for each in (one, two):
            await until_listed(each.asking, within_s=8)


@pytest.mark.covers("DS-2", "PW-2")
async def test_scripts_must_say_what_the_leases_in_memory_say(server: RedisServer) -> None:
    """Every history of four registrations and withdrawals of two runs of one relay."""
    steps = [("put", run, revision) for run in "ab" for revision in (1, 2)] + [
        ("remove", run, 0) for run in ("a", "b", "")
    ]
    async with storing(server) as store:
        for number, history in enumerate(itertools.product(steps, repeat=4)):
            if number % 5:
                continue  # a fifth of them, each with a pool of its own
            leases, name = Leases(LEASE_S), f"p{number}"
            for what, run, revision in history:
                told = registration(name=name, run=run, revision=revision)
                if what == "put":
                    wanted, _ = leases.put(told, 0.0)
                    assert await store.put(told) is wanted, history
                else:
                    assert await store.remove(told.key, run) is leases.remove(told.key, run, 0.0), history
        await store.read()
        assert all(held.registration.relay.revision in (1, 2) for held in store.live())


async def test_revisions_must_be_compared_whole(server: RedisServer) -> None:
    async with storing(server) as store:
        great = (1 << 63) - 1
        await store.put(registration(revision=great))
        assert await store.put(registration(revision=great - 1)) is Verdict.STALE_REVISION
        assert await store.put(registration(revision=99)) is Verdict.STALE_REVISION
        assert await store.put(registration(revision=great)) is Verdict.RENEWED


GARBAGE = {
    "registrations": [b"\xff\xfe", b"{}", b"[1]", b'{"inc":1,"rev":2,"body":3}', b'{"body":"{}"}'],
    "replaced": [b"\xff", b'{"a":1}', b"[[1]]"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in GARBAGE.items() for value in values]
)
async def test_foreign_data_must_be_passed_over_and_written_over(
    server: RedisServer, name: str, value: bytes
) -> None:
    async with storing(server) as store, server.client() as client:
        field = "\n".join(("east", "serving", "chat"))
        await client.hset(f"t:{{pools}}:{name}", field, value)
        await client.hset("t:{pools}:registrations", b"\x00\xff", value)
        await client.zadd("t:{pools}:leases", {field: 9e15, b"\x00\xff": 9e15, "other": 9e15})
        await store.put(registration("west"))
        await store.read()
        assert names(store) == ["west"]
        assert await store.put(registration("east")) is Verdict.NEW
        await store.read()
        assert names(store) == ["east", "west"]


@pytest.mark.parametrize("name", ["changes", "born", "seen"])
async def test_figures_of_somebody_else_must_be_begun_anew(server: RedisServer, name: str) -> None:
    async with storing(server) as store, server.client() as client:
        await client.set(f"t:{{pools}}:{name}", b"what?")
        await store.put(registration())
        await store.read()
        assert names(store) == ["east"]


async def test_key_of_another_type_must_be_an_error_that_says_so(server: RedisServer) -> None:
    async with storing(server) as store, server.client() as client:
        await client.set("t:{pools}:leases", b"x")
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            await store.put(registration())


async def test_registration_under_anothers_name_must_be_passed_over(server: RedisServer) -> None:
    async with storing(server) as store, server.client() as client:
        await store.put(registration())
        raw = await client.hget("t:{pools}:registrations", "east\nserving\nchat")
        await client.hset("t:{pools}:registrations", "west\nserving\nchat", raw)
        await client.zadd("t:{pools}:leases", {"west\nserving\nchat": 9e15})
        await client.incr("t:{pools}:changes")
        await store.read()
        assert names(store) == ["east"]


@pytest.mark.covers("DS-3")
async def test_time_in_which_nobody_could_renew_must_not_count(server: RedisServer) -> None:
    async with storing(server, lease_s=3.0) as store, server.client() as client:
        await store.read()
        await store.put(registration())

        async def is_complete() -> None:
            await store.put(registration())
            await store.read()
            assert store.complete()

        await eventually(is_complete)
        await backdate(client, 20_000)
        await store.read()
        assert (names(store), store.complete()) == (["east"], False)
        await backdate(client, 10 * 60_000)
        await store.read()
        assert (names(store), store.complete()) == ([], False)


async def test_clock_of_the_server_that_is_set_back_must_not_lengthen_leases(server: RedisServer) -> None:
    async with storing(server) as store, server.client() as client:
        await store.put(registration())
        await backdate(client, -3_600_000)
        await store.read()
        (held,) = store.live()
        assert held.expires_s - SystemClock().monotonic() <= LEASE_S


async def backdate(client: Any, milliseconds: int) -> None:
    """As if all that is kept had been written so long ago."""
    for name in ("born", "seen"):
        value = int(await client.get(f"t:{{pools}}:{name}"))
        await client.set(f"t:{{pools}}:{name}", value - milliseconds)
    for member, end in await client.zrange("t:{pools}:leases", 0, -1, withscores=True):
        await client.zadd("t:{pools}:leases", {member: end - milliseconds})


@pytest.mark.covers("DS-2")
async def test_what_is_over_for_a_week_must_be_gone_and_the_keys_end_themselves(server: RedisServer) -> None:
    async with storing(server) as store, server.client() as client:
        await store.put(registration("east", run="a"))
        await store.put(registration("east", run="b"))
        await store.put(registration("north"))
        await store.remove(registration("north").key, "")
        for cluster in ("east", "north"):
            await client.zadd("t:{pools}:leases", {f"{cluster}\nserving\nchat": 1.0})
        await store.put(registration("west"))
        for name in ("registrations", "replaced"):
            assert not await client.hexists(f"t:{{pools}}:{name}", "east\nserving\nchat")
            assert not await client.hexists(f"t:{{pools}}:{name}", "north\nserving\nchat")
        for name in scripts.KEYS:
            left = await client.pttl(f"t:{{pools}}:{name}")
            assert left == -2 or 0 < left <= scripts.WEEK_MS


async def test_number_of_pools_must_be_bounded(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    few = scripts.PUT.replace(">= 20000", ">= 2")
    assert few != scripts.PUT
    monkeypatch.setattr(scripts, "PUT", few)
    async with storing(server) as store:
        assert await store.put(registration("a")) is Verdict.NEW
        assert await store.put(registration("b")) is Verdict.NEW
        assert await store.put(registration("c")) is Verdict.FULL
        assert await store.put(registration("b")) is Verdict.RENEWED


async def test_look_that_was_under_way_never_hides_what_has_just_registered(server: RedisServer) -> None:
    clock = FakeClock()
    async with storing(server, clock) as store:
        old = await store._ask(scripts.READ, b"")
        ask, answers = store._ask, [old]

        async def late(script: str, *arguments: Any) -> Any:
            if script is scripts.READ and answers:
                await store.put(registration())
                return answers.pop()
            return await ask(script, *arguments)

        store._ask = late
        await store.read()
        assert names(store) == ["east"]
        await clock.advance(0.1)
        await store.read()
        assert names(store) == ["east"]


async def test_whole_list_must_be_read_only_where_something_changed(server: RedisServer) -> None:
    async with storing(server) as store:
        told: Registration = replace(registration(), models=())
        await store.put(told)
        await store.read()
        kept = store._raw
        await store.put(told)
        await store.read()
        assert store._raw is kept


def test_address_that_is_none_must_be_refused() -> None:
    with pytest.raises(UserError, match="--redis-url"):
        RedisStore("http://a", "t:", 1.0, FakeClock())
