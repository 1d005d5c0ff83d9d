"""Free ports of loopback for processes that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now. Another process may take it before it is used; the
    tests that use this are few, and a port is not given out again for a while by the kernel."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
