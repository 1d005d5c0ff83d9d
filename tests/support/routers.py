"""A router in this process, on a free port of loopback, before scripted backends.

`routing(*handlers)` starts a RawServer for each handler, each a pool of its own (`pool-0`, `pool-1`, ...)
with the model MODEL, and a Router whose pools come from a file. Timeouts are short unless a test says
otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.router.app import Router
from isthmus.router.options import Drain, RouterOptions
from isthmus.router.plan.breaker import BreakerSettings
from isthmus.router.plan.selector import PolicySettings
from isthmus.router.proxy import ProxySettings
from isthmus.router.upstream import Timeouts
from tests.support.rawhttp import Handler, RawServer

MODEL = "example/tiny"
SHORT = Timeouts(connect_s=1.0, first_byte_s=5.0, between_s=5.0, total_s=30.0, idle_s=2.0)
NAMES = ("POST", "/v1/chat/completions")


@dataclass
class Routing:
    """What a test talks to and looks at."""

    router: Router
    port: int
    backends: list[RawServer]
    file: Path

    def value(self, name: str, **labels: str) -> float:
        """A sample of the router's metrics; 0 where there is none."""
        return self.router.metrics.registry.get_sample_value(name, labels) or 0.0

    def in_flight(self) -> int:
        """Requests at all pools now, by the router's own count."""
        return sum(self.router.selector.in_flight(pool.pool_id) for pool in self.router.directory.pools)


def pool_file(urls: list[list[str]], **more: Any) -> dict[str, Any]:
    """A file of pools, one for each list of frontends, named pool-0, pool-1, ... in one cluster each."""
    return {
        "pools": [
            {
                "cluster_id": f"c{index}",
                "namespace": "serving",
                "name": f"pool-{index}",
                "frontend_urls": each,
                "models": [{"id": MODEL, "aliases": ["tiny"]}],
                **more,
            }
            for index, each in enumerate(urls)
        ]
    }


def options(file: Path, **changes: Any) -> RouterOptions:
    """Options for tests: a free port, short times, a patient breaker."""
    given: dict[str, Any] = {
        "listen": (("127.0.0.1",), 0),
        "pools_file": file,
        "timeouts": SHORT,
        "drain": Drain(delay_s=0.0, timeout_s=2.0),
        "proxy": ProxySettings(total_s=30.0),
        "policy": PolicySettings(breaker=BreakerSettings(threshold=1000)),
        "loads": False,
        "access_log": False,
    }
    return RouterOptions(**(given | changes))


@asynccontextmanager
async def routing(folder: Path, *handlers: Handler, **changes: Any) -> AsyncIterator[Routing]:
    """See the module. `changes` are RouterOptions'."""
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(RawServer(handler)) for handler in handlers]
        file = folder / "pools.json"
        file.write_text(json.dumps(pool_file([[backend.url] for backend in backends])))
        router = Router(options(file, **changes))
        router.bind()
        async with router.serving():
            yield Routing(router, router.listeners[0].addresses[0][1], backends, file)


def body(*, stream: bool = False, model: str = MODEL, **more: Any) -> bytes:
    """A chat completion's body."""
    message = {"role": "user", "content": "hello"}
    return json.dumps({"model": model, "messages": [message], "stream": stream, **more}).encode()


def request(
    payload: bytes | None = None, *, path: str = NAMES[1], headers: bytes = b"", last: bool = True
) -> bytes:
    """A whole request."""
    payload = body() if payload is None else payload
    close = b"Connection: close\r\n" if last else b""
    return (
        f"POST {path} HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n".encode()
        + close
        + headers
        + f"Content-Length: {len(payload)}\r\n\r\n".encode()
        + payload
    )


async def opened(port: int, raw: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which `raw` was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    return reader, writer
