"""Credentials, certificates, proxies and streams on a scripted wire."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import errors
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.kube.credentials import REREAD_S, Fixed, Pem, TokenFile
from isthmus.kube.execplugin import ExecCommand, ExecCredentials
from isthmus.kube.tls import TlsSettings
from tests.support.certs import Authority
from tests.support.clock import InstantClock
from tests.support.rawhttp import RawServer, Request, Wire
from tests.unit.kube.conftest import THINGS, Serve, stored


async def answer(request: Request, wire: Wire) -> None:
    await wire.answer(stored())


class Guard:
    """Lets in only requests with the token that is good now."""

    def __init__(self, good: str) -> None:
        self.good = good
        self.seen: list[str] = []

    async def __call__(self, request: Request, wire: Wire) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append(token)
        if token == self.good:
            await wire.answer(stored())
        else:
            await wire.answer({"kind": "Status", "code": 401, "reason": "Unauthorized"}, 401)


def swap(folder: Path, name: str, content: bytes, generation: str) -> None:
    data = folder / f"..{generation}"
    data.mkdir()
    (data / name).write_bytes(content)
    (folder / "..tmp").symlink_to(data.name)
    os.replace(folder / "..tmp", folder / "..data")
    if not (folder / name).is_symlink():
        (folder / name).symlink_to(f"..data/{name}")


@pytest.mark.covers("R24")
async def test_rotated_token_must_be_found_after_three_rotations(serve: Serve, tmp_path: Path) -> None:
    swap(tmp_path, "token", b"t0", "0")
    guard = Guard("t0")
    async with serve(guard, config={"credentials": TokenFile(tmp_path / "token")}) as (client, _, clock):
        await client.get(THINGS, "n", "a")
        for number in range(1, 4):
            guard.good = f"t{number}"
            swap(tmp_path, "token", guard.good.encode(), str(number))
            await client.create(THINGS, "n", {})  # a refused write has not been carried out
        assert guard.seen == ["t0", "t0", "t1", "t1", "t2", "t2", "t3"]
        guard.seen.clear()
        swap(tmp_path, "token", b"t4", "4")
        await clock.advance(REREAD_S)
        guard.good = "t4"
        await client.get(THINGS, "n", "a")
        assert guard.seen == ["t4"]


@pytest.mark.covers("R24")
async def test_token_that_comes_late_must_be_waited_for(serve: Serve, tmp_path: Path) -> None:
    """The old one dies 5 s before the file is replaced: a 401 then passes by itself."""
    swap(tmp_path, "token", b"old", "0")
    guard = Guard("new")

    class LateClock(InstantClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if sum(self.slept) > 5 and guard.good == "new" and not (tmp_path / "..1").exists():
                swap(tmp_path, "token", b"new", "1")

    clock = LateClock()
    async with RawServer(guard) as server:
        config = ClusterConfig(server=server.url, credentials=TokenFile(tmp_path / "token"))
        async with Client(config, clock=clock) as client:
            await client.create(THINGS, "n", {})
    assert 5 < sum(clock.slept) < 15


async def test_token_that_never_changes_must_be_given_up_at_once(serve: Serve) -> None:
    guard = Guard("good")
    async with serve(guard, config={"credentials": Fixed.token("bad")}) as (client, _, clock):
        with pytest.raises(errors.Unauthorized):
            await client.get(THINGS, "n", "a")
    assert guard.seen == ["bad"]
    assert clock.slept == []


async def test_refused_plugin_token_must_be_fetched_anew(serve: Serve, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\nprintf x >> {tmp_path}/runs\n"
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"%s"}}}}\' "$(cat {tmp_path}/runs)"\n'
    )
    script.chmod(0o755)
    command = ExecCommand(command=str(script), api_version="client.authentication.k8s.io/v1")
    guard = Guard("xx")
    async with serve(guard, config={"credentials": ExecCredentials(command)}) as (client, _, _):
        await client.create(THINGS, "n", {})
    assert guard.seen == ["x", "xx"]


async def test_impersonation_must_be_sent(serve: Serve) -> None:
    headers = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"))
    async with serve(answer, config={"headers": headers}) as (client, server, _):
        await client.get(THINGS, "n", "a")
    sent = server.requests[0].headers
    assert (sent["impersonate-user"], sent["impersonate-group"]) == ("jane", "a")


@pytest.mark.covers("R24")
async def test_new_authority_must_be_trusted_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    swap(tmp_path, "ca.crt", old.pem, "0")
    clock = InstantClock()
    async with RawServer(answer, tls=old.server_context(tmp_path)) as server:
        config = ClusterConfig(server=server.url, tls=TlsSettings(ca_path=tmp_path / "ca.crt"))
        port = server.port
        async with Client(config, clock=clock) as client:
            await client.get(THINGS, "n", "a")
            await server.__aexit__()
            async with RawServer(answer, tls=new.server_context(tmp_path), port=port):
                with pytest.raises(errors.Unreachable, match="certificate") as caught:
                    await client.create(THINGS, "n", {})
                assert not caught.value.sent
                swap(tmp_path, "ca.crt", new.pem, "1")
                clock.slept.clear()
                await client.create(THINGS, "n", {})
                assert clock.slept == []  # read again since a certificate was refused, not by schedule


@pytest.mark.parametrize(
    ("dns", "server_name", "works"),
    [((), "", True), (("other",), "other", True), (("other",), "wrong", False)],
)
async def test_server_name_must_be_checked(
    tmp_path: Path, dns: tuple[str, ...], server_name: str, works: bool
) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path, dns=dns, loopback=not dns)
    async with RawServer(answer, tls=context) as server:
        tls = TlsSettings(ca_pem=authority.pem, server_name=server_name)
        async with Client(ClusterConfig(server=server.url, tls=tls), clock=InstantClock()) as client:
            if works:
                await client.get(THINGS, "n", "a")
            else:
                with pytest.raises(errors.Unreachable, match="certificate"):
                    await client.get(THINGS, "n", "a")


async def test_client_certificate_must_be_shown(tmp_path: Path) -> None:
    authority = Authority()
    pem = Pem(*authority.issue("someone", loopback=False))
    (tmp_path / "c").write_bytes(pem.certificate)
    (tmp_path / "k").write_bytes(pem.key)
    by_data = TlsSettings(ca_pem=authority.pem, certificate=pem)
    by_path = TlsSettings(ca_pem=authority.pem, certificate_path=tmp_path / "c", key_path=tmp_path / "k")
    async with RawServer(answer, tls=authority.server_context(tmp_path, ask_client=True)) as server:
        for tls in (by_data, by_path):
            async with Client(ClusterConfig(server=server.url, tls=tls)) as client:
                await client.get(THINGS, "n", "a")
        bare = ClusterConfig(server=server.url, tls=TlsSettings(ca_pem=authority.pem))
        async with Client(bare, clock=InstantClock()) as client:
            with pytest.raises(errors.Unreachable):
                await client.get(THINGS, "n", "a")


async def test_insecure_must_talk_to_anyone(tmp_path: Path) -> None:
    async with RawServer(answer, tls=Authority().server_context(tmp_path)) as server:
        client = Client(ClusterConfig(server=server.url, tls=TlsSettings(insecure=True)))
        async with client:
            await client.get(THINGS, "n", "a")


class ConnectProxy:
    """A forward proxy that counts: CONNECT is passed through, anything else answered with 407."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.authorizations: list[str] = []

    async def __call__(self, request: Request, wire: Wire) -> None:
        self.targets.append(f"{request.method} {request.target}")
        self.authorizations.append(request.headers.get("proxy-authorization", ""))
        if request.method != "CONNECT":
            await wire.answer(b"", 407)
            return
        host, _, port = request.target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(pump(wire.reader, writer))
            group.create_task(pump(reader, wire.writer))
        wire.open = False


@pytest.mark.covers("R25")
async def test_proxy_of_the_kubeconfig_must_see_the_calls(tmp_path: Path) -> None:
    authority = Authority()
    proxy = ConnectProxy()
    async with (
        RawServer(proxy) as forward,
        RawServer(answer, tls=authority.server_context(tmp_path)) as server,
    ):
        config = ClusterConfig(
            server=server.url,
            tls=TlsSettings(ca_pem=authority.pem),
            credentials=Fixed.token("secret"),
            proxy=forward.url.replace("//", "//user:pass@"),
        )
        async with Client(config) as client:
            await client.get(THINGS, "n", "a")
        assert proxy.targets == [f"CONNECT 127.0.0.1:{server.port}"]
        assert proxy.authorizations == ["Basic " + base64.b64encode(b"user:pass").decode()]
        assert "authorization" not in forward.requests[0].headers
        assert server.requests[0].headers["authorization"] == "Bearer secret"


@pytest.mark.covers("R25")
async def test_dead_proxy_must_be_called_unreachable_and_unsent(tmp_path: Path) -> None:
    config = ClusterConfig(
        server="https://127.0.0.1:1", proxy="http://127.0.0.1:9", tls=TlsSettings(insecure=True)
    )
    async with Client(config, clock=InstantClock()) as client:
        with pytest.raises(errors.Unreachable) as caught:
            await client.create(THINGS, "n", {})
    assert not caught.value.sent


@pytest.mark.covers("R25")
async def test_proxy_variables_never_are_read_behind_the_configurations_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serve(answer) as (client, _, _):
        await client.get(THINGS, "n", "a")


EVENTS = b'{"type":"ADDED","object":{}}\n{"type":"DELETED","object":{}}\n'


async def lines_of(client: Client, *, timeout_s: float = 5, **parameters: Any) -> list[bytes]:
    async with client.watch(THINGS, "n", resource_version="7", timeout_s=timeout_s, **parameters) as stream:
        return [line async for line in stream]


async def test_watch_must_give_lines_however_the_body_is_framed(serve: Serve) -> None:
    async def chunked(request: Request, wire: Wire) -> None:
        await wire.start_chunked()
        for start in range(0, len(EVENTS), 7):
            await wire.chunk(EVENTS[start : start + 7])
        await wire.end_chunked()

    async def sized(request: Request, wire: Wire) -> None:
        await wire.answer(EVENTS.rstrip())

    async def until_close(request: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + EVENTS)
        wire.close()

    for handler in (chunked, sized, until_close):
        async with serve(handler) as (client, server, _):
            assert await lines_of(client, label_selector="a=b") == EVENTS.split()
        assert server.requests[0].query == {
            "watch": "1",
            "resourceVersion": "7",
            "allowWatchBookmarks": "true",
            "labelSelector": "a=b",
            "timeoutSeconds": "5",
        }


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_cut_watch_must_give_no_half_event_and_say_that_it_was_lost(serve: Serve, ending: str) -> None:
    async def handler(request: Request, wire: Wire) -> None:
        await wire.start_chunked()
        await wire.chunk(EVENTS + b'{"type":')
        await asyncio.sleep(0.05)
        getattr(wire, ending)()

    got: list[bytes] = []

    async def watch(client: Client) -> None:
        async with client.watch(THINGS, resource_version="7", timeout_s=5) as stream:
            async for line in stream:
                got.append(line)

    async with serve(handler) as (client, _, _):
        with pytest.raises(errors.Unreachable):
            await watch(client)
    assert got == EVENTS.split()


async def mute(request: Request, wire: Wire) -> None:
    await wire.start_chunked()
    await wire.chunk(EVENTS)
    await asyncio.Event().wait()


@pytest.mark.covers("R18")
async def test_mute_watch_must_be_given_up_after_its_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.kube.client.WATCH_GRACE_S", 0.2)
    async with serve(mute) as (client, _, _):
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await lines_of(client, timeout_s=0.2)


@pytest.mark.covers("R18")
async def test_mute_watch_must_end_after_its_silence(serve: Serve) -> None:
    async with serve(mute) as (client, _, _):
        assert await lines_of(client, timeout_s=600, idle_s=0.4) == EVENTS.split()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(410, errors.Expired), (404, errors.NotFound), (429, errors.Throttled), (302, errors.ApiError)],
)
async def test_refused_watch_must_say_why(serve: Serve, status: int, kind: type[Exception]) -> None:
    async def handler(request: Request, wire: Wire) -> None:
        await wire.answer({"kind": "Status", "code": status}, status, {"Retry-After": "3"})

    async with serve(handler) as (client, _, _):
        with pytest.raises(kind):
            await lines_of(client)


async def test_event_of_megabytes_must_come_whole(serve: Serve) -> None:
    big = b'{"type":"ADDED","object":"' + b"x" * 3_000_000 + b'"}'

    async def handler(request: Request, wire: Wire) -> None:
        await wire.start_chunked()
        await wire.chunk(big + b"\n")
        await wire.end_chunked()

    async with serve(handler) as (client, _, _):
        assert await lines_of(client) == [big]
