"""The image of Isthmus as the sandbox has it: the first thing that a pod's real process runs.

`python -m isthmus.sandbox.entrypoint POD MODULE ARGUMENT...` runs a module as `python -m` does, in a pod's
stead; POD (`CLUSTER.NAMESPACE.NAME`) is for those who look at the list of processes. A container has the
ports of its own network for itself, here all pods share one machine; so a TCP socket that is bound to port N
of any address gets instead the loopback port that `PORTS` (`8000=41234,8081=41235`) has for N, or any free
one where the pod does not declare N. The pod has no IPv6 address. Nothing that is run here knows of it
(docs/decisions/0024). machine.py writes the command line; it is no part of what users install.
"""

from __future__ import annotations

import errno
import os
import runpy
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

PORTS: Final = "ISTHMUS_SANDBOX_PORTS"
LOOPBACK: Final = "127.0.0.1"

Bind = Callable[[socket.socket, Any], None]


def format_ports(ports: Mapping[int, int]) -> str:
    """The value of PORTS: each port of the pod and the one on loopback."""
    return ",".join(f"{port}={real}" for port, real in ports.items())


def parse_ports(text: str) -> dict[int, int]:
    """Back from `format_ports`. Raises ValueError."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {int(port): int(real) for port, _, real in pairs}


def placed(bind: Bind, ports: Mapping[int, int]) -> Bind:
    """`socket.bind` of a pod: on loopback, where the sandbox wants it. The sandbox holds these ports with
    SO_REUSEPORT (ports.py), so the socket needs that too."""

    def bind_in_pod(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "a pod of the sandbox has no IPv6 address")
        if self.family != socket.AF_INET or self.type != socket.SOCK_STREAM:
            bind(self, address)
            return
        real = ports.get(address[1], 0)
        if real:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bind(self, (LOOPBACK, real))

    return bind_in_pod


def main() -> None:
    """Be the module that the command line names."""
    _, module, *arguments = sys.argv[1:]
    bind = placed(socket.socket.bind, parse_ports(os.environ.pop(PORTS, "")))
    socket.socket.bind = bind  # type: ignore[assignment,method-assign] # what the docstring is about
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
