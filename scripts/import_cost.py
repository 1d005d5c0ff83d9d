"""Prints what importing each dependency adds to a process: the table of docs/decisions/0002-dependencies.md.

Each row is a fresh interpreter that imports the modules of all rows up to its own, or one of the alternatives
on top of a row, and says its resident memory and how long that took. Run `python scripts/import_cost.py`;
rows of what is not installed say so. Nothing is installed and nothing is sent anywhere.
"""

from __future__ import annotations

import subprocess
import sys

ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bare interpreter", ()),
    ("aiohttp", ("aiohttp",)),
    ("uvloop", ("uvloop",)),
    ("msgspec", ("msgspec",)),
    ("prometheus-client", ("prometheus_client",)),
    ("structlog", ("structlog",)),
    ("click", ("click",)),
    (
        "isthmus operator, ready to start",
        ("isthmus.cli.operator", "isthmus.kube.config", "isthmus.app.operator"),
    ),
)
INSTEAD: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("+ pyyaml (a kubeconfig is read)", ("yaml",)),
    ("+ rich (isthmus debug)", ("rich.console", "rich.tree")),
    ("+ cryptography (isthmus sandbox)", ("cryptography.x509",)),
    ("+ lightkube.config.kubeconfig", ("lightkube.config.kubeconfig",)),
    ("+ kubernetes.aio.config", ("kubernetes.aio.config",)),
    ("+ kubernetes.client", ("kubernetes.client",)),
    ("+ typer", ("typer",)),
    ("+ cyclopts", ("cyclopts",)),
)
TRIES = 3

PROBE = """
import sys, time, importlib
began = time.perf_counter()
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        print("absent")
        sys.exit()
took = time.perf_counter() - began
resident = next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]
print(int(resident) / 1024, took)
"""


def measure(modules: tuple[str, ...]) -> tuple[float, float] | None:
    """(MiB resident, seconds), each the least of a few runs; None where a module is not installed."""
    best = (float("inf"), float("inf"))
    for _ in range(TRIES):
        words = subprocess.run(
            [sys.executable, "-c", PROBE, *modules], capture_output=True, text=True, check=True
        ).stdout.split()
        if words == ["absent"]:
            return None
        best = (min(best[0], float(words[0])), min(best[1], float(words[1])))
    return best


def main() -> None:
    """Print the table as Markdown."""
    print(f"Python {sys.version.split()[0]}, {sys.platform}\n")
    print("| imported | resident MiB | added MiB | seconds |")
    print("|---|---|---|---|")
    so_far: tuple[str, ...] = ()
    before = 0.0
    for name, modules in ROWS:
        so_far += modules
        before = _row(name, measure(so_far), before)
    base = so_far[:-3]
    resident = (measure(base) or (0.0, 0.0))[0]
    for name, modules in INSTEAD:
        _row(name, measure(base + modules), resident)


def _row(name: str, measured: tuple[float, float] | None, before: float) -> float:
    if measured is None:
        print(f"| {name} | not installed | | |")
        return before
    print(f"| {name} | {measured[0]:.1f} | {measured[0] - before:.1f} | {measured[1]:.2f} |")
    return measured[0]


if __name__ == "__main__":
    main()
