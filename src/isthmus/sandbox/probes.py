"""Probes of a real pod's process, against its loopback ports: an HTTP answer, or only a connection.

workload.py runs `watch` for each probe that the container has. While a readiness probe has not succeeded it
is repeated every `EAGER_S` at the latest, whatever its period, so that a demonstration does not wait for a
kubelet's patience; its initial delay is not kept either. Liveness, where a failure has consequences, is asked
as the manifest says, and so is readiness once it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from isthmus.clock import Clock
from isthmus.sandbox.manifest import Check
from isthmus.sandbox.ports import LOOPBACK

EAGER_S: Final = 0.2
STATUS_BYTES: Final = 4096


async def succeeds(check: Check, ports: Mapping[int, int]) -> bool:
    """Ask once: whether the answer's status is 2xx or 3xx, or for one without a path whether it connects."""
    if check.port is None:
        return True
    real = ports.get(check.port)
    if real is None:
        return False
    try:
        async with asyncio.timeout(check.timeout_s):
            return await _ask(real, check)
    except (OSError, TimeoutError, EOFError, ValueError):
        return False


async def watch(
    check: Check,
    ports: Mapping[int, int],
    clock: Clock,
    heard: Callable[[bool], None],
    *,
    eager: bool = False,
) -> None:
    """Ask for ever, and say each change of the verdict to `heard`: True after enough successes in a row,
    False after enough failures. `eager`: do not wait for a whole period while it is not True."""
    verdict: bool | None = None
    good = bad = 0
    while True:
        if await succeeds(check, ports):
            good, bad = good + 1, 0
        else:
            good, bad = 0, bad + 1
        if good >= check.successes and verdict is not True:
            verdict = True
            heard(True)
        elif bad >= check.failures and verdict is not False:
            verdict = False
            heard(False)
        await clock.sleep(min(EAGER_S, check.period_s) if eager and not verdict else check.period_s)


async def _ask(port: int, check: Check) -> bool:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=STATUS_BYTES)
    try:
        if check.path is None:
            return True
        head = f"GET {check.path} HTTP/1.1\r\nHost: {LOOPBACK}:{check.port}\r\n"
        writer.write(f"{head}User-Agent: kube-probe/sandbox\r\nConnection: close\r\n\r\n".encode())
        status = (await reader.readline()).split(b" ")
        return len(status) > 1 and 200 <= int(status[1]) < 400
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
