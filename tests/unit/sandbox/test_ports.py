"""A reserved port stays ours, and a server of ours can listen on it."""

from __future__ import annotations

import socket

import pytest

from isthmus.sandbox import ports


def test_reserved_port_never_can_be_taken_by_another() -> None:
    with ports.reserve() as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((ports.LOOPBACK, ports.port_of(held)))


def test_server_that_shares_a_reserved_port_must_get_every_connection() -> None:
    with ports.reserve() as held, socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((ports.LOOPBACK, ports.port_of(held)))
        server.listen(50)
        for _ in range(50):
            with socket.create_connection((ports.LOOPBACK, ports.port_of(held)), timeout=1) as client:
                taken, address = server.accept()
                taken.close()
                assert address == client.getsockname()


def test_reserved_ports_must_differ() -> None:
    held = [ports.reserve() for _ in range(50)]
    assert len({ports.port_of(each) for each in held}) == 50
    for each in held:
        each.close()
