"""Reflectors against the real API server, through a proxy that cuts, freezes and swallows."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from isthmus.kube import errors, watch_state
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.watch import Reflector, Settings
from isthmus.kube.watch_state import Phase
from tests.support.controlplane import StartSandbox
from tests.support.eventually import until
from tests.support.faultproxy import FaultProxy
from tests.support.places import CONFIG_MAPS, ConfigMap, config_map, load, own_namespace

pytestmark = pytest.mark.apiserver

QUICK = Settings(watch_s=30, state=watch_state.Settings(base_s=0.01, cap_s=0.2))


class Memory:
    """A sink that remembers (UID, version) by name."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[str, str]] = {}
        self.version = 0
        self.lists = 0

    def replace(self, source: str, items: list[ConfigMap], resource_version: str) -> None:
        self.content = {item.metadata.name: _identity(item) for item in items}
        self.version = int(resource_version)
        self.lists += 1

    def upsert(self, source: str, obj: ConfigMap) -> None:
        self.content[obj.metadata.name] = _identity(obj)

    def remove(self, source: str, obj: ConfigMap) -> None:
        self.content.pop(obj.metadata.name, None)

    def progress(self, source: str, resource_version: str) -> None:
        self.version = int(resource_version)


def _identity(obj: ConfigMap) -> tuple[str, str]:
    return obj.metadata.uid, obj.metadata.resource_version


@dataclass
class Scene:
    """A direct client, a namespace, and a reflector of it behind a proxy."""

    client: Client
    namespace: str
    proxy: FaultProxy
    reflector: Reflector[ConfigMap]
    memory: Memory

    async def truth(self) -> dict[str, tuple[str, str]]:
        """A fresh list, past the proxy."""
        page = await self.client.list_page(CONFIG_MAPS, self.namespace, label_selector="test=yes")
        return {item.metadata.name: _identity(item) for item in page.items}

    async def settled(self, within_s: float = 10) -> None:
        """Wait until the sink shows the truth."""
        wanted = await self.truth()
        await until(
            lambda: self.memory.content == wanted, within_s=within_s, seen=lambda: self.memory.content
        )

    async def create(self, name: str) -> None:
        """A ConfigMap, past the proxy."""
        await self.client.create(CONFIG_MAPS, self.namespace, config_map(name))

    async def delete(self, name: str) -> None:
        """Delete it, past the proxy."""
        await self.client.delete(CONFIG_MAPS, self.namespace, name)

    async def watching(self) -> None:
        """Wait until the watch is open."""
        await until(lambda: self.reflector.phase is Phase.STREAMING)


@asynccontextmanager
async def scene(kubeconfig: Path, settings: Settings = QUICK) -> AsyncIterator[Scene]:
    loaded = await load(kubeconfig)
    where = urlsplit(loaded.server)
    async with (
        own_namespace(kubeconfig) as (direct, namespace),
        FaultProxy(where.hostname or "", where.port or 443) as proxy,
    ):
        behind = msgspec.structs.replace(loaded, server=f"https://127.0.0.1:{proxy.listen_port}")
        async with Client(behind) as client, asyncio.TaskGroup() as group:
            memory = Memory()
            reflector = Reflector(
                client,
                CONFIG_MAPS,
                sink=memory,
                namespace=namespace,
                label_selector="test=yes",
                settings=settings,
            )
            task = group.create_task(reflector.run())
            try:
                await reflector.synced.wait()
                yield Scene(direct, namespace, proxy, reflector, memory)
            finally:
                task.cancel()


async def test_sink_must_follow_every_change(admin_kubeconfig: Path) -> None:
    async with scene(admin_kubeconfig) as play:
        await asyncio.gather(*(play.create(f"m-{number}") for number in range(30)))
        await asyncio.gather(*(play.delete(f"m-{number}") for number in range(0, 30, 3)))
        written = await play.client.patch(
            CONFIG_MAPS, play.namespace, "m-1", {"data": {"x": "y"}}, kind=PatchKind.MERGE
        )
        await play.settled()
        assert len(play.memory.content) == 20
        assert play.memory.lists == 1
        assert play.memory.version >= int(written.resource_version)


@pytest.mark.covers("R19")
@pytest.mark.timeout(120)
async def test_two_hundred_cuts_never_must_hide_a_change(admin_kubeconfig: Path) -> None:
    chance = random.Random(19)
    async with scene(admin_kubeconfig) as play:
        names: set[str] = set()
        for number in range(200):
            play.proxy.reset_all()
            for _ in range(chance.randint(1, 3)):
                name = f"m-{chance.randint(0, 9)}"
                if name in names:
                    await play.delete(name)
                if name not in names or chance.random() < 0.3:  # made again under its name
                    await play.create(name)
                    names.add(name)
                else:
                    names.discard(name)
            if number % 5 == 0:
                await play.settled()
        await play.settled()


@pytest.mark.covers("R22")
@pytest.mark.timeout(60)
async def test_connection_cut_at_any_byte_must_be_survived(admin_kubeconfig: Path) -> None:
    """In the handshake, in the headers, and in the middle of events."""
    async with scene(admin_kubeconfig) as play:
        for number, cut in enumerate((0, 1, 5, 100, 900, 1500, 1800, 2000, 2200, 2500, 3000, 4000)):
            play.proxy.cut_after(cut)
            play.proxy.reset_all()
            wanted, event = play.proxy.connections + 3, 0
            while play.proxy.connections < wanted:  # each event brings the open watch nearer to its cut
                await play.create(f"m-{number}-{event}")
                await asyncio.sleep(0.05)
                event += 1
            play.proxy.heal()
            play.proxy.reset_all()
            await play.settled()


async def test_frozen_connection_must_deliver_what_it_has_held(admin_kubeconfig: Path) -> None:
    async with scene(admin_kubeconfig) as play:
        await play.watching()
        play.proxy.freeze()
        await play.create("held")
        await asyncio.sleep(0.2)
        assert play.memory.content == {}
        play.proxy.heal()
        await play.settled()
        assert play.memory.lists == 1


@pytest.mark.covers("R18")
@pytest.mark.timeout(60)
async def test_path_that_died_without_a_word_must_be_found(admin_kubeconfig: Path) -> None:
    """The bound is how long a watch may be silent, which by default is below a minute."""
    settings = Settings(watch_s=30, idle_s=3, state=watch_state.Settings(base_s=0.05, cap_s=0.2))
    loop = asyncio.get_running_loop()
    async with scene(admin_kubeconfig, settings) as play:
        await play.create("before")
        await play.settled()
        play.proxy.blackhole()
        await play.delete("before")
        await play.create("meanwhile")
        started, before = loop.time(), play.proxy.connections
        await until(lambda: play.proxy.connections > before, within_s=settings.idle_s + 3)
        assert loop.time() - started <= settings.idle_s + 2
        assert play.reflector.age(loop.time()) >= settings.idle_s - 0.5
        play.proxy.heal()
        play.proxy.reset_all()
        await play.settled(within_s=15)
        assert set(play.memory.content) == {"meanwhile"}
    assert Settings().idle_s < 60


@pytest.mark.timeout(40)
async def test_idle_watch_must_be_renewed_without_lists(admin_kubeconfig: Path) -> None:
    settings = Settings(watch_s=5)
    async with scene(admin_kubeconfig, settings) as play:
        await play.watching()
        before = play.proxy.connections
        first = play.memory.version
        await play.client.create(CONFIG_MAPS, "default", config_map(f"x-{play.namespace}"))
        # The bookmark that comes before the end of the watch.
        await until(lambda: play.memory.version > first, within_s=15)
        await asyncio.sleep(4)
        await play.client.delete(CONFIG_MAPS, "default", f"x-{play.namespace}")
        assert play.memory.lists == 1
        assert play.proxy.connections == before  # the pool's connection is used again
        assert play.reflector.age(asyncio.get_running_loop().time()) < 2 * settings.watch_s


@pytest.mark.covers("R22")
@pytest.mark.timeout(90)
async def test_restart_of_the_api_server_must_be_survived(private_controlplane: StartSandbox) -> None:
    sandbox = await asyncio.to_thread(private_controlplane, crds=())
    kubeconfig = sandbox.cluster().kubeconfig()
    loaded = await load(kubeconfig)
    async with own_namespace(kubeconfig) as (client, namespace), Client(loaded) as watching:
        memory = Memory()
        reflector = Reflector(watching, CONFIG_MAPS, sink=memory, namespace=namespace, settings=QUICK)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            await reflector.synced.wait()
            restart = group.create_task(asyncio.to_thread(sandbox.restart_apiserver))
            for number in range(20):  # a create whose answer was lost may have arrived
                with contextlib.suppress(errors.Unreachable, errors.ServerError):
                    await client.create(CONFIG_MAPS, namespace, config_map(f"m-{number}"))
            await restart
            await client.apply(CONFIG_MAPS, namespace, "last", config_map("last"), field_manager="me")
            page = await client.list_page(CONFIG_MAPS, namespace)
            wanted = {item.metadata.name: _identity(item) for item in page.items}
            await until(lambda: memory.content == wanted, within_s=20, seen=lambda: memory.content)
            assert "last" in wanted
            task.cancel()
