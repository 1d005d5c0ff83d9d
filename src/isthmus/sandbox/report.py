"""What `isthmus sandbox status` prints about one sandbox: a few lines of text from its record.

cli/sandbox.py prints what `describe` returns. Memory, CPU time and the processes of pods come from /proc,
everything else from the record that the supervisor keeps. Nothing is written or asked of the supervisor here.
"""

from __future__ import annotations

from isthmus.clock import SystemClock
from isthmus.sandbox import entrypoint, places, processes
from isthmus.sandbox.settings import Folder, Record


def describe(record: Record, *, alive: bool) -> str:
    """Several lines: phase and age, addresses and kubeconfigs, and a row per process."""
    folder = Folder(places.state_home() / record.name)
    if not alive:
        return (
            f"{record.name}: crashed; its logs are in {folder.logs}\n"
            f"  `isthmus sandbox down --name {record.name}` clears it, and so does `up`"
        )
    age_s = int(SystemClock().now() - record.started)
    kind = "detached" if record.detached else "ends with who started it"
    phase = record.phase if record.phase != "starting" else f"starting ({record.step})"
    lines = [
        f"{record.name}: {phase}, {age_s // 60}m{age_s % 60:02d}s old, {kind}, {record.nodes} nodes each"
    ]
    for index, server in enumerate(record.servers):
        lines.append(f"  cluster {index}: {server}  KUBECONFIG={folder.kubeconfig(index, 'admin')}")
    rows = [("supervisor", record.supervisor.pid, "running", 0)]
    for name, component in record.components.items():
        pid = 0 if component.identity is None else component.identity.pid
        rows.append((name, pid, component.state, component.restarts))
    pods = processes.children(record.supervisor.pid, entrypoint.__name__)
    rows += [(f"pod {pod}", pid, "running", 0) for pid, pod in sorted(pods.items(), key=lambda item: item[1])]
    width = max(len(name) for name, *_ in rows)
    lines += [_row(name.ljust(width), pid, state, restarts) for name, pid, state, restarts in rows]
    return "\n".join(lines)


def _row(name: str, pid: int, state: str, restarts: int) -> str:
    used = (
        f"{processes.resident_bytes(pid) >> 20:5d} MB {processes.cpu_seconds(pid):8.1f} s CPU" if pid else ""
    )
    again = f", started again {restarts} times" if restarts else ""
    return f"  {name} {pid or '-':>8} {used}  {state}{again}"
