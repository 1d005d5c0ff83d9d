"""The verbs on a scripted wire: what is sent, what is repeated, and what comes of each answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from isthmus.kube import errors
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.config import ClusterConfig
from isthmus.kube.metrics import ClientMetrics
from tests.support.rawhttp import Request, Wire
from tests.unit.kube.conftest import PATH, THINGS, Serve, stored


class Script:
    """A handler that plays one answer per request, the last one for all that follow."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def __call__(self, request: Request, wire: Wire) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "rst":
            wire.reset()
        elif answer == "close":
            wire.close()
        elif answer == "cut":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            wire.close()
        elif isinstance(answer, tuple):
            status, headers = answer
            await wire.answer({"kind": "Status", "code": status}, status, headers)
        else:
            await wire.answer(answer)


async def test_get_must_decode_what_the_type_names(serve: Serve) -> None:
    async with serve(Script(stored(spec={"replicas": 3, "other": 1}))) as (client, server, _):
        thing = await client.get(THINGS, "n", "a")
    assert (thing.spec.replicas, thing.metadata.resource_version) == (3, "7")
    (request,) = server.requests
    assert (request.method, request.target) == ("GET", f"{PATH}/a")
    assert request.headers["user-agent"].startswith("isthmus/")
    assert request.headers["accept-encoding"] == "identity"


async def test_names_must_be_quoted(serve: Serve) -> None:
    async with serve(Script(stored())) as (client, server, _):
        await client.get(THINGS, "n", "../x?y#z")
    assert server.requests[0].target == f"{PATH}/..%2Fx%3Fy%23z"


async def test_writes_must_be_sent_as_the_api_wants_them(serve: Serve) -> None:
    async with serve(Script(stored())) as (client, server, _):
        written = await client.create(THINGS, "n", {"metadata": {"name": "a"}})
        assert (written.name, written.namespace, written.uid, written.resource_version) == (
            "a",
            "n",
            "u",
            "7",
        )
        await client.apply(THINGS, "n", "a", {"x": 1}, field_manager="me", force=True, subresource="status")
        await client.patch(THINGS, "n", "a", {"x": 1}, kind=PatchKind.MERGE)
        await client.patch(THINGS, "n", "a", [{"op": "test"}], kind=PatchKind.JSON, subresource="scale")
        await client.patch(THINGS, "n", "a", b"{}", kind=PatchKind.STRATEGIC)
        await client.update(THINGS, "n", "a", {"x": 1})
        await client.delete(THINGS, "n", "a", uid="u", resource_version="7", propagation="Background")
        await client.delete(THINGS, "n", "a", grace_period_s=0)
        await client.delete_collection(THINGS, "n", label_selector="a=b", grace_period_s=0)
    sent = [
        (r.method, r.target.removeprefix(PATH), r.headers["content-type"].partition("+")[0])
        for r in server.requests
    ]
    assert sent == [
        ("POST", "", "application/json"),
        ("PATCH", "/a/status?fieldManager=me&force=true", "application/apply-patch"),
        ("PATCH", "/a", "application/merge-patch"),
        ("PATCH", "/a/scale", "application/json-patch"),
        ("PATCH", "/a", "application/strategic-merge-patch"),
        ("PUT", "/a", "application/json"),
        ("DELETE", "/a", "application/json"),
        ("DELETE", "/a", "application/json"),
        ("DELETE", "?labelSelector=a%3Db", "application/json"),
    ]
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert [r.json for r in server.requests[-3:]] == [
        options | {"propagationPolicy": "Background", "preconditions": {"uid": "u", "resourceVersion": "7"}},
        options | {"gracePeriodSeconds": 0},
        options | {"gracePeriodSeconds": 0},
    ]
    with pytest.raises(ValueError, match="without a label selector"):
        await client.delete_collection(THINGS, "n", label_selector="")


async def test_list_must_follow_its_pages(serve: Serve) -> None:
    async def handler(request: Request, wire: Wire) -> None:
        token = request.query.get("continue", "")
        meta = {"resourceVersion": "5", "continue": {"": "one", "one": "two"}.get(token, "")}
        await wire.answer({"metadata": meta, "items": [stored(f"x{token}")]})

    async with serve(handler) as (client, server, _):
        pages = [page async for page in client.list_all(THINGS, "n", label_selector="a in (b)", limit=1)]
    assert [page.items[0].metadata.name for page in pages] == ["x", "xone", "xtwo"]
    assert {(r.query["limit"], r.query["labelSelector"]) for r in server.requests} == {("1", "a in (b)")}


@pytest.mark.covers("R21")
async def test_expired_continue_must_be_told(serve: Serve) -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "c"}, "items": []}
    async with serve(Script(first, (410, {}))) as (client, _, _):
        with pytest.raises(errors.Expired):
            assert [page async for page in client.list_all(THINGS)]


async def test_list_parameters_must_reach_the_server(serve: Serve) -> None:
    async with serve(Script({"metadata": {}, "items": []})) as (client, server, _):
        await client.list_page(
            THINGS, limit=0, field_selector="a=b", resource_version="0", resource_version_match="NotOlderThan"
        )
    assert server.requests[0].query == {
        "fieldSelector": "a=b",
        "resourceVersion": "0",
        "resourceVersionMatch": "NotOlderThan",
    }


@pytest.mark.parametrize("fault", ["rst", "close", "cut", (500, {}), (503, {}), (429, {})])
async def test_read_must_be_repeated(serve: Serve, fault: Any) -> None:
    async with serve(Script(fault, fault, stored())) as (client, server, clock):
        await client.get(THINGS, "n", "a")
    assert len(server.requests) >= 3
    assert 0.05 <= clock.slept[0] <= 0.1
    assert len(clock.slept) <= 2


@pytest.mark.parametrize("fault", ["rst", "close", "cut", (500, {}), (503, {"Retry-After": "1"})])
async def test_create_that_may_have_arrived_never_is_repeated(serve: Serve, fault: Any) -> None:
    async with serve(Script(fault)) as (client, server, clock):
        with pytest.raises((errors.Unreachable, errors.ServerError)) as caught:
            await client.create(THINGS, "n", {})
    assert len(server.requests) == 1
    assert clock.slept == []
    assert getattr(caught.value, "sent", True)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("2", 2, 2.5), ("Mon, 21 Sep 2026 14:13:23 GMT", 3, 3.75), ("", 0.05, 0.1), ("rubbish", 0.05, 0.1)],
)
async def test_refused_create_must_wait_as_asked(serve: Serve, header: str, low: float, high: float) -> None:
    async with serve(Script((429, {"Retry-After": header}), stored())) as (client, server, clock):
        await client.create(THINGS, "n", {})
    assert len(server.requests) == 2
    (slept,) = clock.slept
    assert low <= slept <= high


async def test_create_that_never_left_must_be_repeated(serve: Serve) -> None:
    async with serve(Script(stored())) as (_, server, clock):
        port = server.port
    config = ClusterConfig(server=f"http://127.0.0.1:{port}")
    async with Client(config, clock=clock) as client:
        with pytest.raises(errors.Unreachable) as caught:
            await client.create(THINGS, "n", {})
    assert not caught.value.sent
    assert len(clock.slept) > 5
    assert sum(clock.slept) <= 30


async def test_server_that_asks_for_more_time_than_there_is_must_be_given_up(serve: Serve) -> None:
    async with serve(Script((429, {"Retry-After": "31"}))) as (client, _, clock):
        with pytest.raises(errors.Throttled) as caught:
            await client.get(THINGS, "n", "a")
    assert caught.value.retry_after_s == 31
    assert clock.slept == []


async def test_mute_server_must_be_given_up_in_time(serve: Serve) -> None:
    async def handler(request: Request, wire: Wire) -> None:
        await asyncio.Event().wait()

    async with serve(handler, timeout_s=1.5) as (client, _, _):
        with pytest.raises(errors.Unreachable, match="no answer in time") as caught:
            await client.create(THINGS, "n", {})
    assert caught.value.sent


async def test_delete_with_a_uid_must_be_repeated_and_others_not(serve: Serve) -> None:
    async with serve(Script((500, {}), stored())) as (client, server, _):
        await client.delete(THINGS, "n", "a", uid="u")
        assert len(server.requests) == 2
    async with serve(Script((500, {}))) as (client, server, _):
        with pytest.raises(errors.ServerError):
            await client.delete(THINGS, "n", "a")
        assert len(server.requests) == 1


async def test_redirect_never_is_followed(serve: Serve) -> None:
    async with serve(Script((302, {"Location": "http://127.0.0.1:1/"}))) as (client, server, _):
        with pytest.raises(errors.ApiError) as caught:
            await client.get(THINGS, "n", "a")
    assert caught.value.status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}"])
async def test_wrong_answer_must_be_called_so(serve: Serve, body: bytes) -> None:
    async with serve(Script(body)) as (client, _, _):
        with pytest.raises(errors.WrongAnswer):
            await client.create(THINGS, "n", {})


@pytest.mark.covers("R15")
async def test_only_one_write_must_be_between_the_gate_and_the_kernel(serve: Serve) -> None:
    """Of many that start at once few have left by the time at which the first has come in."""

    class Gate:
        open = True
        asked = 0

        def check(self) -> None:
            self.asked += 1
            if not self.open:
                raise errors.WriteRefused("no longer the leader")

    gate = Gate()

    async def handler(request: Request, wire: Wire) -> None:
        gate.open = False
        await wire.answer(stored())

    async with serve(handler, gate=gate) as (client, server, _):
        writes = (client.create(THINGS, "n", {}) for _ in range(40))
        ended = await asyncio.gather(*writes, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, errors.WriteRefused)]
    assert len(refused) == 40 - len(server.requests)
    assert 0 < len(server.requests) < 12
    assert gate.asked == 40


@pytest.mark.covers("R15")
async def test_closed_gate_must_stop_a_write_that_waits_for_its_repeat(serve: Serve) -> None:
    class Gate:
        allowed = 1

        def check(self) -> None:
            self.allowed -= 1
            if self.allowed < 0:
                raise errors.WriteRefused("no longer the leader")

    gate = Gate()
    async with serve(Script((429, {}), stored()), gate=gate) as (client, server, _):
        with pytest.raises(errors.WriteRefused):
            await client.create(THINGS, "n", {})
        assert len(server.requests) == 1
        assert (await client.get(THINGS, "n", "a")).metadata.name == "a"
        for write in (
            client.apply(THINGS, "n", "a", {}, field_manager="me"),
            client.patch(THINGS, "n", "a", {}, kind=PatchKind.MERGE),
            client.update(THINGS, "n", "a", {}),
            client.delete(THINGS, "n", "a", uid="u"),
            client.delete_collection(THINGS, "n", label_selector="a"),
        ):
            with pytest.raises(errors.WriteRefused):
                await write
    assert [request.method for request in server.requests] == ["POST", "GET"]


@pytest.mark.covers("R15")
async def test_closed_gate_must_stop_what_the_http_library_would_send_again(serve: Serve) -> None:
    class Gate:
        open = True

        def check(self) -> None:
            if not self.open:
                raise errors.WriteRefused("no longer the leader")

    gate = Gate()

    async def handler(request: Request, wire: Wire) -> None:
        if request.method == "GET":
            await wire.answer(stored())
        else:
            gate.open = False
            wire.close()

    async with serve(handler, gate=gate) as (client, server, _):
        await client.get(THINGS, "n", "a")  # so that the write finds a connection that is in use already
        with pytest.raises(errors.WriteRefused):
            await client.delete(THINGS, "n", "a", uid="u")
    assert [request.method for request in server.requests] == ["GET", "DELETE"]


async def test_rate_must_hold_for_repeats_too(serve: Serve) -> None:
    async with serve(Script((500, {}), stored()), qps=0.5, burst=1) as (client, _, clock):
        started = clock.monotonic()
        await client.get(THINGS, "n", "a")
    assert clock.monotonic() - started == pytest.approx(2)


async def test_answers_must_be_counted_by_code(serve: Serve) -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    async with serve(Script("rst", (503, {}), stored()), metrics=metrics) as (client, server, _):
        await client.apply(THINGS, "n", "a", {}, field_manager="me")
        host = f"127.0.0.1:{server.port}"
        for code in ("<error>", "503", "200"):
            labels = {"code": code, "method": "PATCH", "host": host}
            assert registry.get_sample_value("rest_client_requests_total", labels) == 1


async def test_client_that_is_not_open_must_say_so() -> None:
    client = Client(ClusterConfig(server="http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match="not open"):
        await client.get(THINGS, "n", "a")
