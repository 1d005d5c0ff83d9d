"""A relay's parts on real sockets, without a cluster: frontends that do as they are told, a discovery service
that notes what it is asked, and a relay between them whose pool is what a test says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from isthmus.clock import SystemClock
from isthmus.relay.grpcface import GrpcFace
from isthmus.relay.options import RelayOptions
from isthmus.relay.pages import Pages
from isthmus.relay.plan.model import Crew, Door, Roster, Selection
from isthmus.relay.prober import Prober
from isthmus.relay.split import Splitter
from isthmus.relay.view import View
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Supervisor
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, Route, Routes, coded_error, get
from isthmus.web.server import Listener
from tests.support.relayfacts import crew, options

LOOPBACK = ("127.0.0.1",)


@dataclass
class Frontend:
    """A pool's OpenAI server: what it answers is in its fields, and may be changed at any time."""

    models: list[str] = field(default_factory=lambda: ["example/tiny"])
    load: dict[str, tuple[int, int]] | None = field(default_factory=lambda: {"example/tiny": (1, 3)})
    """(queued, in flight) by model; None: there is no such page."""
    status: int = 200
    body: bytes | None = None
    """The whole answer to /v1/models, instead of `models`."""
    stuck: asyncio.Event | None = None
    """Answers wait for it."""
    asked: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def door(self) -> Door:
        """As the roster has it."""
        return Door(url=self.url, service="east-frontend")

    def routes(self) -> list[Route]:
        """What it answers."""

        async def models(_: Request) -> Answer:
            self.asked += 1
            if self.stuck is not None:
                await self.stuck.wait()
            listed = json.dumps({"data": [{"id": model} for model in self.models]}).encode()
            return Answer(status=self.status, body=listed if self.body is None else self.body)

        async def metrics(_: Request) -> Answer:
            if self.load is None:
                return Answer(status=404)
            lines = []
            for model, (queued, inflight) in self.load.items():
                lines.append(f'dynamo_frontend_queued_requests{{model="{model}"}} {queued}')
                lines.append(f'dynamo_frontend_inflight_requests{{model="{model}"}} {inflight}')
            return Answer(body="\n".join([*lines, ""]).encode(), content_type="text/plain")

        return [get("/v1/models", models), get("/metrics", metrics)]


@asynccontextmanager
async def serving(frontend: Any) -> AsyncIterator[Any]:
    """What has `routes` and a `port`, answering on a free one."""
    limits = Limits(body_bytes=1 << 20, drain_s=0.2)
    listener = Listener("--test", Routes(frontend.routes()), hosts=LOOPBACK, port=0, limits=limits)
    listener.bind()
    frontend.port = listener.addresses[0][1]
    await listener.serve()
    try:
        yield frontend
    finally:
        await listener.stop()


class TestRelay:
    """A relay whose pool is `roster`: change it, and call `view.touch`."""

    __test__ = False

    def __init__(self, told: RelayOptions) -> None:
        self.roster: Roster | None = None
        self.clock = SystemClock()
        self.metrics = Metrics()
        self.view = View(told, self._read, self.clock)
        self.prober = Prober(self.view, self.clock, self.metrics)
        self.grpc = GrpcFace(self.view, self.clock, lambda: self.view.facts is not None)
        self.splitter = Splitter(self.grpc.path)
        self.port = 0

    def _read(self, _: Selection) -> Roster | None:
        return self.roster

    def see(self, *doors: Door, crews: tuple[Crew, ...] = ()) -> None:
        """The pool is this now."""
        self.roster = Roster(doors=tuple(sorted(doors)), crews=tuple(sorted(crews or (crew(),))))
        self.view.touch()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def target(self) -> str:
        """The same for gRPC."""
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def relaying(
    told: RelayOptions | None = None, *, limits: Limits | None = None
) -> AsyncIterator[TestRelay]:
    """A relay that runs."""
    relay = TestRelay(told or options(bind=(LOOPBACK, 1)))
    listener = Listener(
        "--bind",
        Routes(Pages(relay.view, relay.clock).routes(), page=coded_error),
        hosts=LOOPBACK,
        port=0,
        limits=limits or Limits(drain_s=0.5),
        front=relay.splitter.front,
    )
    listener.bind()
    relay.port = listener.addresses[0][1]
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Supervisor(relay.clock, relay.metrics))
        await relay.grpc.serve()
        tasks.start("view", relay.view.keep)
        tasks.start("probe", relay.prober.run)
        tasks.start("split", relay.splitter.run)
        await listener.serve()
        yield relay
        assert tasks.failure is None
        for plane in relay.view.planes:
            plane.close()
        await relay.grpc.stop()
        relay.splitter.stop()
        await listener.stop()


async def fetch(url: str, **query: str) -> tuple[int, Any]:
    """(status, JSON) of a page."""
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
        return answer.status, await answer.json()


@asynccontextmanager
async def events(url: str, **query: str) -> AsyncIterator[Callable[[], Any]]:
    """A stream of server-sent events: each call awaits the next one's data, or None at the end."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, params={"watch": "1"} | query, timeout=aiohttp.ClientTimeout(total=15)) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"

        async def following() -> Any:
            while line := await answer.content.readline():
                if line.startswith(b"data: "):
                    return json.loads(line[6:])
            return None

        yield following


@dataclass
class Discovery:
    """A discovery service: notes what it is asked, and answers as its fields say."""

    status: int = 200
    answer: dict[str, Any] = field(
        default_factory=lambda: {"pool_id": "p", "heartbeat_interval_secs": 0.2, "lease_duration_secs": 2}
    )
    headers: dict[str, str] = field(default_factory=dict)
    registered: list[dict[str, Any]] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stuck: asyncio.Event | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[Route]:
        """What it answers."""

        async def post(request: Request) -> Answer:
            self.registered.append(json.loads(request.body))
            self.authorized.append(request.header("authorization"))
            if self.stuck is not None:
                await self.stuck.wait()
            return Answer(status=self.status, body=json.dumps(self.answer).encode(), headers=self.headers)

        async def delete(request: Request) -> Answer:
            self.left.append(f"{request.path}?{dict(request.query)}")
            return Answer(status=204)

        return [Route("/pools", {"POST": post}), Route("/pools/one/serving/east", {"DELETE": delete})]
