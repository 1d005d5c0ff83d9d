"""What does the router cost between a client and a pool, beside a direct call, nginx and the LiteLLM proxy?

`python -m benchmarks.router [NAME...]` prints tables as docs/performance.md has them. Latency: one request at
a time, the contenders in turns, so that a noisy moment hits all; shown is the difference to the direct call's
median and 99th percentile. Throughput: as many connections as keep the contender's one core
busy; what is shown is requests per second of its CPU. Last, how long and how often a pool that was killed is
still tried, and how many clients saw that. Contender on one core, backends and client on the other.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from benchmarks import contenders, wire
from benchmarks.contenders import Contender
from benchmarks.process import memory_mb

ROUNDS = 20
PER_ROUND = 100
CONNECTIONS = 64
BUSY_S = 5.0
DEATH_S = 10.0
FRONT_PORT, BACK_PORT = 18200, 18300
ALL: dict[str, Callable[[Path, int, Sequence[int]], AbstractContextManager[Contender]]] = {
    "isthmus": contenders.isthmus,
    "nginx": contenders.nginx,
    "litellm": contenders.litellm,
}


class Row(NamedTuple):
    """One contender's figures: seconds for latencies, requests per second of CPU, MB."""

    name: str
    first_s: tuple[float, float]
    whole_s: tuple[float, float]
    per_core: float
    wrong: int
    memory_mb: float


@contextmanager
def backend(room: Path, port: int) -> Iterator[int]:
    """The backend of benchmarks.wire on this port; gives its PID."""
    command = [sys.executable, "-m", "benchmarks.wire", str(port)]
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    with contenders.process(f"backend-{port}", command, room, environ) as pid:
        contenders.wait_ready(port, room / f"backend-{port}.log")
        yield pid


def _pin(pid: int, core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cores[core % len(cores)]})


def _at(samples: Sequence[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


async def _latencies(parties: Sequence[tuple[str, int]], *, stream: bool) -> dict[str, list[wire.Sample]]:
    found: dict[str, list[wire.Sample]] = {name: [] for name, _ in parties}
    for number in range(ROUNDS + 1):
        for name, port in parties:
            samples = await wire.load(port, stream=stream, connections=1, count=PER_ROUND)
            if number:  # the first round is for warming up
                found[name] += samples
    return found


def measure(parties: Sequence[Contender], direct: int, *, stream: bool) -> list[Row]:
    """A row for the direct call, and one for each contender."""
    import uvloop

    ports = [("direct", direct), *((each.name, each.port) for each in parties)]
    samples = uvloop.run(_latencies(ports, stream=stream))
    rows = [_row("direct", samples["direct"], 0.0, 0, 0.0)]
    for party in parties:
        before = party.cpu_s()
        busy = uvloop.run(wire.load(party.port, stream=stream, connections=CONNECTIONS, seconds=BUSY_S))
        spent = party.cpu_s() - before
        wrong = sum(not each.right for each in busy)
        memory = sum(memory_mb(pid) for pid in party.pids)
        rows.append(_row(party.name, samples[party.name], (len(busy) - wrong) / spent, wrong, memory))
    return rows


def _row(name: str, samples: Sequence[wire.Sample], per_core: float, wrong: int, memory: float) -> Row:
    first, whole = [each.first_s for each in samples], [each.whole_s for each in samples]
    return Row(
        name,
        (statistics.median(first), _at(first, 0.99)),
        (statistics.median(whole), _at(whole, 0.99)),
        per_core,
        wrong + sum(not each.right for each in samples),
        memory,
    )


def table(rows: Sequence[Row], title: str) -> str:
    """Markdown, latencies as milliseconds more than the direct call's."""
    direct = rows[0]
    latencies = "first byte, median | first byte, p99 | whole, median | whole, p99"
    lines = [
        f"| {title} | {latencies} | requests/s per core | wrong | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        deltas = [
            1000 * (mine - (0.0 if row is direct else base))
            for mine, base in zip(
                (*row.first_s, *row.whole_s), (*direct.first_s, *direct.whole_s), strict=True
            )
        ]
        cells = [f"{each:.2f} ms" if row is direct else f"{each:+.2f} ms" for each in deltas]
        rest = (
            ["", "", ""]
            if row is direct
            else [f"{row.per_core:,.0f}", str(row.wrong), f"{row.memory_mb:.0f}"]
        )
        lines.append(f"| {row.name} | {' | '.join([*cells, *rest])} |")
    return "\n".join(lines)


def death(room: Path) -> str:
    """Kill one of two pools under load: how many tries still went there, for how long, and who noticed."""
    import uvloop

    ports = (BACK_PORT + 8, BACK_PORT + 9)
    with ExitStack() as stack:
        pids = [stack.enter_context(backend(room, port)) for port in ports]
        party = stack.enter_context(contenders.isthmus(room, FRONT_PORT + 9, ports))
        tries: list[tuple[float, float]] = []

        async def watch(until: float, killed: list[float]) -> None:
            loop = asyncio.get_running_loop()
            while time.perf_counter() < until:
                if not killed and time.perf_counter() > until - DEATH_S:
                    os.kill(pids[0], signal.SIGKILL)
                    killed.append(time.perf_counter())
                failed = await loop.run_in_executor(None, _failed_tries, party.port)
                tries.append((time.perf_counter(), failed))
                await asyncio.sleep(0.02)

        async def play() -> tuple[list[wire.Sample], float]:
            killed: list[float] = []
            until = time.perf_counter() + DEATH_S + 1
            async with asyncio.TaskGroup() as group:
                group.create_task(watch(until, killed))
                load = group.create_task(
                    wire.load(party.port, stream=False, connections=8, seconds=DEATH_S + 1)
                )
            return load.result(), killed[0]

        samples, killed_at = uvloop.run(play())
    wrong = sum(not each.right for each in samples)
    times = [at for (at, now), (_, before) in zip(tries[1:], tries, strict=False) if now > before]
    early = [at for at in times if at - killed_at < 2.0]
    first_end = (max(early) - killed_at) if early else 0.0
    return (
        f"{len(samples):,} requests, one of two pools killed: {tries[-1][1]:.0f} tries failed there in "
        f"{DEATH_S:.0f} s, "
        f"the last of the first burst {1000 * first_end:.0f} ms after the death; {wrong} clients saw an error"
    )


def _failed_tries(port: int) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.findall(r'^gr_attempts_total\{[^}]*result="([^"]+)"[^}]*\} (\S+)$', text, re.MULTILINE)
    return sum(float(value) for result, value in found if result not in ("ok", "success"))


def main() -> None:
    """See the module."""
    names = sys.argv[1:] or list(ALL)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        room = Path(folder)
        back = stack.enter_context(backend(room, BACK_PORT))
        parties = [
            stack.enter_context(ALL[name](room, FRONT_PORT + number, [BACK_PORT]))
            for number, name in enumerate(names)
        ]
        _pin(back, 0)
        _pin(os.getpid(), 0)
        for party in parties:
            for pid in party.pids:
                _pin(pid, 1)
        for stream in (False, True):
            title = "streaming, 20 pieces" if stream else "plain"
            print(table(measure(parties, BACK_PORT, stream=stream), title), end="\n\n", flush=True)
        if "isthmus" in names:
            print(death(room))


if __name__ == "__main__":
    main()
