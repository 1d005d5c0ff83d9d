"""`python -m benchmarks [--large] [--scenarios S1,S6] [--without-volcano]`: the operator's figures beside
the Go implementation's.

`--large` plays S1 and S6 with 20,000 pods instead (about ten minutes). Prints Markdown, as
docs/performance.md has it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import uvloop

from benchmarks.go import GO
from benchmarks.process import Audit, Operator
from benchmarks.scenarios import Player, Result, Size
from benchmarks.world import watched
from isthmus import logs
from isthmus.api import crd
from isthmus.sandbox import NodeSettings, Sandbox, volcano

USER = "operator"


def row(result: Result, prefix: str) -> str:
    """One line of the table; Go's figures in brackets."""
    go = GO.get(prefix + result.name)

    def beside(ours: float, theirs: float | None, digits: int) -> str:
        return f"{ours:.{digits}f}" + (f" ({theirs:g})" if theirs is not None else "")

    cells = [
        prefix + result.name,
        "yes" if result.reached else "**no**",
        beside(result.wall_s, go.wall_s if go else None, 1),
        beside(result.cpu_s, go.cpu_s if go else None, 2),
        beside(result.peak_mb, go.peak_mb if go else None, 0),
        beside(len(result.requests), go.requests if go else None, 0),
        f"{result.events}",
        f"{result.refused}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = """
| scenario | reached | wall s (Go) | CPU s (Go) | peak MB (Go) | requests (Go) | of them events | refused |
|---|---|---|---|---|---|---|---|"""


async def play(sandbox: Sandbox, scenarios: list[str], size: Size, *, prefix: str, within_s: float) -> None:
    """Play them in order and print as they end."""
    with tempfile.TemporaryDirectory() as folder:
        operator = Operator(sandbox.cluster().kubeconfig(USER), Path(folder) / "operator.log")
        audit = Audit(sandbox.folder.audit_log(0), USER)
        operator.start()
        try:
            async with watched(sandbox.cluster().kubeconfig()) as world:
                await asyncio.sleep(3)
                print(HEAD, flush=True)
                player = Player(sandbox, world, operator, audit, size, within_s=within_s)
                details = []
                for scenario in scenarios:
                    result = await player.play(scenario)
                    print(row(result, prefix), flush=True)
                    details.append(f"{prefix}{result.name}: {result.kinds}")
                print("\n" + "\n".join(details))
        finally:
            operator.kill()


def main() -> None:
    """Parse the arguments and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="250 x 20 groups: 20,000 pods")
    parser.add_argument("--scenarios", default="", help="for example S1,idle,S6")
    parser.add_argument("--without-volcano", action="store_true", help="no PodGroup API, and so none")
    arguments = parser.parse_args()
    logs.configure("error", "text")
    size = Size(250, 20) if arguments.large else Size()
    default = "S1,S6" if arguments.large else "S1,idle,S6,S3,S3c,S4,S5,S2,S2j,S1,S5f"
    scenarios = (arguments.scenarios or default).split(",")
    crds = crd.definitions() + ([] if arguments.without_volcano else [volcano.pod_groups()])
    with Sandbox.start(audit=True, crds=crds, node=NodeSettings()) as sandbox:
        uvloop.run(
            play(
                sandbox,
                scenarios,
                size,
                prefix="large-" if arguments.large else "",
                within_s=900 if arguments.large else 240,
            )
        )


if __name__ == "__main__":
    main()
