"""Probes of a real pod ask its loopback port, and say each change of their verdict once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from isthmus.clock import SystemClock
from isthmus.sandbox import probes
from isthmus.sandbox.manifest import Check
from tests.support.eventually import until

CHECK = Check(port=8000, path="/health", delay_s=0, period_s=0.05, timeout_s=1, failures=3, successes=2)


class Answers:
    """A server whose status the test changes; `asked` has the request lines."""

    def __init__(self) -> None:
        self.status = 200
        self.port = 0
        self.asked: list[bytes] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(1024)
        self.asked.append(head.partition(b"\r\n")[0])
        if head:
            writer.write(b"HTTP/1.1 %d Whatever\r\n\r\n" % self.status)
        writer.close()


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    made = Answers()
    server = await asyncio.start_server(made.meet, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@pytest.mark.parametrize(
    ("status", "verdict"), [(200, True), (302, True), (399, True), (199, False), (400, False), (503, False)]
)
async def test_status_must_decide(answers: Answers, status: int, verdict: bool) -> None:
    answers.status = status
    assert await probes.succeeds(CHECK, {8000: answers.port}) is verdict
    assert answers.asked == [b"GET /health HTTP/1.1"]


async def test_probe_without_a_path_must_only_connect(answers: Answers) -> None:
    answers.status = 500
    connects = msgspec.structs.replace(CHECK, path=None)
    assert await probes.succeeds(connects, {8000: answers.port})


async def test_probe_must_fail_where_nobody_is_and_succeed_where_nothing_is_asked() -> None:
    assert not await probes.succeeds(CHECK, {})
    assert not await probes.succeeds(CHECK, {8000: 1})
    assert await probes.succeeds(msgspec.structs.replace(CHECK, port=None), {})


async def test_verdict_must_change_after_enough_answers_in_a_row(answers: Answers) -> None:
    heard: list[tuple[bool, int]] = []
    answers.status = 503

    def hear(verdict: bool) -> None:
        heard.append((verdict, len(answers.asked)))
        answers.asked.clear()
        answers.status = 503 if verdict else 200

    async with asyncio.TaskGroup() as group:
        task = group.create_task(probes.watch(CHECK, {8000: answers.port}, SystemClock(), hear))
        await until(lambda: len(heard) >= 4)
        task.cancel()
    assert heard[:4] == [(False, 3), (True, 2), (False, 3), (True, 2)]


@pytest.mark.parametrize(("eager", "least"), [(True, 3), (False, 0)])
async def test_only_an_eager_probe_must_not_wait_for_its_period(
    answers: Answers, eager: bool, least: int
) -> None:
    """A process that has just been started does not answer yet; that is no reason to kill it."""
    answers.status = 503
    heard: list[bool] = []
    check = msgspec.structs.replace(CHECK, period_s=3600)
    async with asyncio.TaskGroup() as group:
        watching = probes.watch(check, {8000: answers.port}, SystemClock(), heard.append, eager=eager)
        task = group.create_task(watching)
        await until(lambda: len(answers.asked) > least)
        task.cancel()
    assert heard == ([False] if eager else [])
