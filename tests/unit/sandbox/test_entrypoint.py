"""A pod's process gets loopback ports for those that it asks for, and knows nothing of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from isthmus.sandbox import entrypoint, ports

SHOW = """
import socket
for family, address in ((2, ("0.0.0.0", 8000)), (2, ("", 9000)), (2, ("127.0.0.1", 0)), (10, ("::", 8000))):
    with socket.socket(family) as sock:
        try:
            sock.bind(address)
            print(*sock.getsockname())
        except OSError as error:
            print(error.errno)
import os, sys
print(os.environ.get("ISTHMUS_SANDBOX_PORTS"), sys.argv[1:], __name__)
"""


def test_ports_must_read_as_they_were_written() -> None:
    assert entrypoint.format_ports({8000: 1, 9000: 2}) == "8000=1,9000=2"
    assert entrypoint.parse_ports("8000=1,9000=2") == {8000: 1, 9000: 2}
    assert entrypoint.parse_ports(entrypoint.format_ports({})) == {}


def test_process_must_be_bound_where_the_sandbox_wants_it(tmp_path: os.PathLike[str]) -> None:
    module = os.path.join(tmp_path, "shown.py")
    with open(module, "w") as out:
        out.write(SHOW)
    with ports.reserve() as held:
        real = ports.port_of(held)
        env = {**os.environ, "PYTHONPATH": str(tmp_path), entrypoint.PORTS: f"8000={real}"}
        command = [sys.executable, "-m", entrypoint.__name__, "0.n.p", "shown", "--flag"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    wild, other, own, six, told = done.stdout.splitlines()
    assert wild == f"127.0.0.1 {real}"
    assert other.startswith("127.0.0.1 ")
    assert own.startswith("127.0.0.1 ")
    assert not {other.split()[1], own.split()[1]} & {str(real), "9000"}
    assert six == str(99)  # EADDRNOTAVAIL: a pod has no IPv6 address
    assert told == "None ['--flag'] __main__"


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM])
def test_other_sockets_must_be_left_alone(kind: socket.SocketKind) -> None:
    bind = entrypoint.placed(socket.socket.bind, {})
    with socket.socket(socket.AF_INET, kind) as sock:
        bind(sock, ("127.0.0.2", 0))
        assert sock.getsockname()[0] == "127.0.0.2"
