"""Free ports on 127.0.0.1 that stay ours from the moment they are chosen until the sandbox ends.

Choosing a port by binding and closing leaves a gap in which another process can take it, and so does every
restart of a server. Here the supervisor keeps a bound, never listening socket with SO_REUSEPORT on each port;
the servers bind the same ports with the same option (etcd --socket-reuse-port, kube-apiserver
--permit-port-sharing) and receive every connection, since a socket that does not listen gets none. Only
processes of the same user can share a port in this way.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def reserve() -> socket.socket:
    """A socket that holds a free port of 127.0.0.1 until it is closed."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((LOOPBACK, 0))
    except BaseException:
        held.close()
        raise
    return held


def port_of(held: socket.socket) -> int:
    """The port that a reserved socket holds."""
    port: int = held.getsockname()[1]
    return port
