"""Addresses into listening sockets, or a UserError that names the flag, before anything else starts.

`bind` is the first thing that an operator does with each listener; `Listener.serve` is later given the
sockets. They listen from the start, so that nobody else can take the port in between. `parse_port` and
`parse_address` read what people write after a flag.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

from isthmus.errors import UserError

LOOPBACK: Final = ("127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")
BACKLOG: Final = 128
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EINVAL})
"""What binding says where the machine has no such address family or address."""
_ATTEMPTS: Final = 20
"""How often a port that is free on the first address is looked for, where port 0 is asked for."""


def parse_port(flag: str, value: str | int) -> int:
    """`value` as a port, 0 meaning that there is to be no listener. Raises UserError naming `flag`."""
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise UserError(
            f"{flag} must be an integer from 1 to 65535, or 0 for none; got {text[:40]!r}",
            hint=f"for example {flag} 8070",
        )
    return int(text)


def parse_address(flag: str, text: str) -> tuple[tuple[str, ...], int] | None:
    """(addresses, port) of `:8080`, `10.0.0.1:8080`, `[::1]:8080` or `localhost:8080`; None for `0` or an
    empty text, which mean that there is to be no listener. Raises UserError naming `flag`."""
    if text in ("", "0"):
        return None
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise UserError(f"{flag} must be ADDRESS:PORT, :PORT or 0; got {text[:60]!r}")
    port = parse_port(flag, port_text)
    if port == 0:
        return None
    if host == "":
        return EVERYWHERE, port
    if host.lower() == "localhost":
        return LOOPBACK, port
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or (address.version == 6) != bracketed:
        raise UserError(
            f"{flag} has {host[:60]!r} where an IP address should be",
            hint="write IPv6 addresses in brackets, and leave the address out for all of them",
        )
    return (str(address),), port


def bind(flag: str, hosts: Sequence[str], port: int) -> list[socket.socket]:
    """A listening socket for each of `hosts` that this machine has, all on the same port.

    Port 0 takes a free one. Raises UserError naming `flag` and the port where it is in use, where this
    process may not have it, or where the machine has none of `hosts`; no socket stays open then.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _bind_all(flag, hosts, port)
        except _Taken as taken:
            if port != 0 or attempt == _ATTEMPTS - 1:
                raise UserError(
                    f"{flag}: port {taken.port} of {taken.host} is already in use",
                    hint=f"choose another port with {flag}, or stop what listens there",
                ) from taken
    raise AssertionError("unreachable")


class _Taken(Exception):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.host = host
        self.port = port


def _bind_all(flag: str, hosts: Sequence[str], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for host in hosts:
            sock = _try_bind(flag, host, port)
            if sock is not None:
                opened.append(sock)
                port = sock.getsockname()[1]
        if not opened:
            raise UserError(f"{flag}: this machine has none of the addresses {', '.join(hosts)}")
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def _try_bind(flag: str, host: str, port: int) -> socket.socket | None:
    """None where the machine has no such address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        if problem.errno in _ABSENT:
            return None
        raise
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as problem:
        sock.close()
        if problem.errno in _ABSENT:
            return None
        if problem.errno == errno.EADDRINUSE:
            raise _Taken(host, port) from problem
        if problem.errno in (errno.EACCES, errno.EPERM):
            raise UserError(
                f"{flag}: this process may not listen on port {port}", hint="use a port of 1024 or above"
            ) from problem
        raise UserError(f"{flag}: cannot listen on {host} port {port}: {problem.strerror}") from problem
    return sock
