"""A small OpenAI-compatible server that streams: what stands behind a pool in demonstrations and tests.

`python -m isthmus.sandbox.openai --model example/tiny=tiny --token-delay-ms 20` (the port is DYN_HTTP_PORT,
or 8000). It answers chat completions, completions, embeddings and the list of models with fixed words in
fixed times, counts as Dynamo's frontend does at /metrics (queued: until the first token; in flight: until the
end), is ready at /health, and at SIGTERM turns unready, takes nothing new and lets running answers end. Its
`system_fingerprint` and the header x-sandbox-server say who answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Final

import click
import msgspec

from isthmus import logs
from isthmus.clock import Clock, SystemClock
from isthmus.errors import UserError
from isthmus.sandbox import completions
from isthmus.sandbox.completions import BadRequest, Reply, Wanted
from isthmus.web.health import metrics_routes
from isthmus.web.limits import Limits
from isthmus.web.routes import TEXT, Answer, Handler, Request, Route, Routes, get
from isthmus.web.server import Listener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logs.get(__name__)

EVENTS: Final = "text/event-stream"
BODY_BYTES: Final = 16 << 20
CONNECTIONS: Final = 4096
TASKS: Final = {
    completions.CHAT: "chat_completions",
    completions.COMPLETIONS: "completions",
    completions.EMBEDDINGS: "embeddings",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How it answers. `models`: aliases by name; `first_token_s` until the first token, `token_s` between
    two; `tokens` where the client sets no limit; `concurrency`: how many at once (0: all); more wait."""

    models: dict[str, tuple[str, ...]]
    name: str = "sandbox"
    first_token_s: float = 0.0
    token_s: float = 0.0
    tokens: int = 16
    concurrency: int = 0

    @property
    def names(self) -> frozenset[str]:
        """What clients may ask for."""
        return frozenset(name for model, aliases in self.models.items() for name in (model, *aliases))


class Meters:
    """What /metrics says."""

    def __init__(self, registry: CollectorRegistry, models: frozenset[str]) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        label, prefix = ["model"], "dynamo_frontend_"
        self.inflight = Gauge(f"{prefix}inflight_requests", "Requests not ended.", label, registry=registry)
        self.queued = Gauge(
            f"{prefix}queued_requests", "Requests without a token yet.", label, registry=registry
        )
        self.requests = Counter(
            f"{prefix}requests",
            "Ended requests.",
            ["model", "endpoint", "request_type", "status"],
            registry=registry,
        )
        self.first = Histogram(
            f"{prefix}time_to_first_token_seconds", "Until the first token.", label, registry=registry
        )
        for model in models:
            self.inflight.labels(model)
            self.queued.labels(model)


class Server:
    """See the module. `routes` are all it has."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        from prometheus_client import CollectorRegistry

        self._settings = settings
        self._clock = clock
        self._registry = CollectorRegistry()
        self._meters = Meters(self._registry, settings.names)
        self._turns = asyncio.Semaphore(settings.concurrency) if settings.concurrency else None
        self._headers = {"x-sandbox-server": settings.name}
        self.draining = False

    def routes(self) -> list[Route]:
        """The paths that are answered."""
        posts = [Route(path, {"POST": self._answer(path)}) for path in TASKS]
        probes = [get("/live", self._live), get("/health", self._health)]
        return [*posts, get(completions.MODELS, self._models), *probes, *metrics_routes(self._registry)]

    async def _live(self, _: Request) -> Answer:
        return Answer(body=b"ok\n", content_type=TEXT)

    async def _health(self, _: Request) -> Answer:
        if self.draining:
            return Answer(status=503, body=b"draining\n", content_type=TEXT)
        return Answer(body=b"ok\n", content_type=TEXT)

    async def _models(self, _: Request) -> Answer:
        return Answer(body=completions.model_list(self._settings.models, created=int(self._clock.now())))

    def _answer(self, path: str) -> Handler:
        async def answer(request: Request) -> Answer:
            settings = self._settings
            try:
                wanted = completions.read(
                    path, request.body, models=settings.names, default_tokens=settings.tokens
                )
            except BadRequest as error:
                return Answer(status=error.status, body=error.body, headers=self._headers)
            if wanted.stream:
                return Answer(body=self._stream(wanted), content_type=EVENTS, headers=self._headers)
            with self._counted(wanted) as first_token:
                async with self._turn():
                    await self._clock.sleep(settings.first_token_s)
                    first_token()
                    if path == completions.EMBEDDINGS:
                        body = completions.embeddings(wanted)
                    else:
                        await self._clock.sleep(settings.token_s * (wanted.tokens - 1))
                        body = completions.whole(wanted, self._reply(wanted))
            return Answer(body=body, headers=self._headers)

        return answer

    async def _stream(self, wanted: Wanted) -> AsyncGenerator[bytes, None]:
        settings, reply = self._settings, self._reply(wanted)
        with self._counted(wanted) as first_token:
            async with self._turn():
                await self._clock.sleep(settings.first_token_s)
                first = True
                for word in completions.words(wanted.tokens):
                    if first:
                        first_token()
                    else:
                        await self._clock.sleep(settings.token_s)
                    yield completions.event(wanted, reply, word, first=first)
                    first = False
                yield completions.event(wanted, reply, None)
                if wanted.usage:
                    yield completions.usage_event(wanted, reply)
                yield completions.DONE

    def _reply(self, wanted: Wanted) -> Reply:
        prefix = "chatcmpl" if wanted.is_chat else "cmpl"
        return Reply(
            id=f"{prefix}-{secrets.token_hex(12)}",
            created=int(self._clock.now()),
            model=wanted.model,
            fingerprint=self._settings.name,
        )

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        if self._turns is None:
            yield
            return
        async with self._turns:
            yield

    @contextlib.contextmanager
    def _counted(self, wanted: Wanted) -> Iterator[_FirstToken]:
        """Count a request from here on; call what is given at its first token."""
        meters, model = self._meters, wanted.model
        began = self._clock.monotonic()
        first_token = _FirstToken(meters, model, self._clock, began)
        meters.inflight.labels(model).inc()
        meters.queued.labels(model).inc()
        status = "error"
        try:
            yield first_token
            status = "success"
        finally:
            if not first_token.came:
                meters.queued.labels(model).dec()
            meters.inflight.labels(model).dec()
            kind = "stream" if wanted.stream else "unary"
            meters.requests.labels(model, TASKS[wanted.path], kind, status).inc()


class _FirstToken:
    """Called when the first token leaves."""

    def __init__(self, meters: Meters, model: str, clock: Clock, began: float) -> None:
        self._meters = meters
        self._model = model
        self._clock = clock
        self._began = began
        self.came = False

    def __call__(self) -> None:
        self.came = True
        self._meters.queued.labels(self._model).dec()
        self._meters.first.labels(self._model).observe(self._clock.monotonic() - self._began)


async def run(settings: Settings, *, host: str, port: int, drain_s: float) -> None:
    """Serve until SIGTERM or SIGINT; then finish what runs, for `drain_s` seconds at most. Raises UserError
    where the port cannot be had."""
    server = Server(settings, SystemClock())
    limits = Limits(body_bytes=BODY_BYTES, connections=CONNECTIONS, drain_s=drain_s)
    listener = Listener("--port", Routes(server.routes()), hosts=[host], port=port, limits=limits)
    listener.bind()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await listener.serve()
    try:
        await stop.wait()
    finally:
        server.draining = True
        await listener.stop()


def parse_models(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """`ID` or `ID=ALIAS,ALIAS` each. Raises UserError where a name is there twice or empty."""
    models: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for text in texts:
        name, _, rest = text.partition("=")
        aliases = tuple(rest.split(",")) if rest else ()
        for each in (name, *aliases):
            if not each or each in seen:
                raise UserError(f"--model {text!r}: each model and alias needs a name of its own")
            seen.add(each)
        models[name] = aliases
    return models


@click.command(context_settings={"show_default": True})
@click.option("--model", "models", multiple=True, default=("example/tiny",), help="ID or ID=ALIAS,...")
@click.option("--name", default=lambda: os.environ.get("POD_NAME", "sandbox"), help="Who it says it is.")
@click.option("--host", default="0.0.0.0", help="Where to listen.")
@click.option("--port", type=int, envvar="DYN_HTTP_PORT", default=8000, help="Where to listen.")
@click.option("--first-token-ms", type=float, default=0.0, help="Until the first token.")
@click.option("--token-delay-ms", type=float, default=0.0, help="Between two tokens.")
@click.option("--tokens", type=int, default=16, help="Tokens where the client sets no limit.")
@click.option("--max-concurrency", type=int, default=0, help="More than these wait; 0: none does.")
@click.option("--drain", type=float, default=30.0, help="Seconds that running answers have at the end.")
def command(  # noqa: PLR0913 - one per flag
    models: tuple[str, ...],
    name: str,
    host: str,
    port: int,
    first_token_ms: float,
    token_delay_ms: float,
    tokens: int,
    max_concurrency: int,
    drain: float,
) -> None:
    """Answer OpenAI requests with fixed words until SIGTERM."""
    settings = Settings(
        models=parse_models(models),
        name=name,
        first_token_s=first_token_ms / 1000,
        token_s=token_delay_ms / 1000,
        tokens=tokens,
        concurrency=max_concurrency,
    )
    logs.configure("info", "text")
    import uvloop

    uvloop.run(run(settings, host=host, port=port, drain_s=drain))


if __name__ == "__main__":
    command()
