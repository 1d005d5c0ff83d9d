"""A real Redis or Valkey server of the test's own, on a free port of loopback, with its data in a folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as redis
from redis.exceptions import RedisError

from isthmus.errors import UserError
from isthmus.sandbox.redis import find
from tests.support.ports import free_port


class RedisServer:
    """See the module. With `keep`, what was written is there after a restart."""

    def __init__(self, folder: Path, *, keep: bool = True) -> None:
        self.port = free_port()
        self._folder = folder
        self._keep = keep
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """For clients."""
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        try:
            server = find()
        except UserError as error:
            pytest.fail(f"{error}: {error.hint}", pytrace=False)
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""]
        words += ["--appendonly", "yes" if self._keep else "no", "--appendfsync", "always"]
        self._process = await asyncio.create_subprocess_exec(
            str(server.program), *words, env=server.environ(os.environ), stdout=asyncio.subprocess.DEVNULL
        )
        async with self.client() as client, asyncio.timeout(10):
            while True:
                with contextlib.suppress(RedisError, OSError):
                    await client.ping()
                    return
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._process = None

    @contextlib.contextmanager
    def stuck(self) -> Any:
        """It takes connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """A plain client."""
        client: Any = redis.Redis(port=self.port)
        try:
            yield client
        finally:
            await client.aclose()


@asynccontextmanager
async def redis_server(folder: Path, *, keep: bool = True) -> AsyncIterator[RedisServer]:
    """A server that runs."""
    server = RedisServer(folder, keep=keep)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
