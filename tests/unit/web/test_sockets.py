from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from isthmus.errors import UserError
from isthmus.web import sockets
from isthmus.web.sockets import EVERYWHERE, LOOPBACK, bind, parse_address, parse_port


@pytest.mark.covers("R30")
@pytest.mark.parametrize(
    ("value", "port"), [("0", 0), ("1", 1), ("65535", 65535), ("08070", 8070), (8070, 8070)]
)
def test_parse_port_must_take_0_to_65535(value: str | int, port: int) -> None:
    assert parse_port("--debug-port", value) == port


@pytest.mark.covers("R30")
@pytest.mark.parametrize(
    "value", ["-1", "65536", "", "80.0", "8e3", "http", " 80", "+80", "1_0", "٨٠", "9" * 5000, -1, 65536]
)
def test_parse_port_must_name_the_flag_and_the_range(value: str | int) -> None:
    with pytest.raises(UserError, match=r"--debug-port must be an integer from 1 to 65535") as caught:
        parse_port("--debug-port", value)
    assert len(str(caught.value)) < 150
    assert "--debug-port" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "hosts", "port"),
    [
        (":8080", EVERYWHERE, 8080),
        ("10.0.0.1:8080", ("10.0.0.1",), 8080),
        ("0.0.0.0:1", ("0.0.0.0",), 1),
        ("[::1]:8080", ("::1",), 8080),
        ("localhost:8080", LOOPBACK, 8080),
    ],
)
def test_parse_address_must_read_what_people_write(text: str, hosts: tuple[str, ...], port: int) -> None:
    assert parse_address("--metrics-address", text) == (hosts, port)


@pytest.mark.parametrize("text", ["", "0", ":0", "127.0.0.1:0"])
def test_parse_address_must_know_no_listener(text: str) -> None:
    assert parse_address("--metrics-address", text) is None


@pytest.mark.parametrize(
    "text", ["8080", "example.com:80", "::1:80", "[127.0.0.1]:80", "127.0.0.1:http", "1.2.3:80", "[::1:80"]
)
def test_parse_address_must_name_the_flag(text: str) -> None:
    with pytest.raises(UserError, match="--metrics-address"):
        parse_address("--metrics-address", text)


class FakeSocket(socket.socket):
    """A socket whose bind fails for addresses in `failures`."""

    failures: dict[str, int] = {}
    made: list[FakeSocket] = []

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        FakeSocket.made.append(self)

    def bind(self, address: tuple[str, int]) -> None:  # type: ignore[override]
        code = FakeSocket.failures.get(address[0])
        if code is not None:
            raise OSError(code, "made up")
        super().bind(("127.0.0.1" if self.family == socket.AF_INET else "::1", address[1]))


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    monkeypatch.setattr("isthmus.web.sockets.socket.socket", FakeSocket)
    FakeSocket.failures, FakeSocket.made = {}, []
    yield FakeSocket.failures
    for sock in FakeSocket.made:
        sock.close()


@pytest.mark.covers("R30")
@pytest.mark.parametrize("absent", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_bind_must_do_with_the_family_that_there_is(failures: dict[str, int], absent: str, code: int) -> None:
    failures[absent] = code
    (sock,) = bind("--x", LOOPBACK, 0)
    assert sock.family == (socket.AF_INET if absent == "::1" else socket.AF_INET6)


def test_bind_must_say_that_the_machine_has_no_such_address(failures: dict[str, int]) -> None:
    failures.update(dict.fromkeys(LOOPBACK, errno.EADDRNOTAVAIL))
    with pytest.raises(UserError, match=r"--x: this machine has none of .*127\.0\.0\.1, ::1"):
        bind("--x", LOOPBACK, 0)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.EADDRINUSE, r"--x: port 8070 of ::1 is already in use"),
        (errno.EACCES, r"--x: this process may not listen on port 8070"),
        (errno.ENOBUFS, r"--x: cannot listen on ::1 port 8070: made up"),
    ],
)
def test_bind_must_leave_nothing_open_where_one_address_fails(
    failures: dict[str, int], code: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSocket, "listen", lambda *_: None)
    monkeypatch.setattr(FakeSocket, "getsockname", lambda _: ("127.0.0.1", 8070))
    failures["::1"] = code
    real = FakeSocket.bind

    def anywhere(self: FakeSocket, address: tuple[str, int]) -> None:
        real(self, (address[0], 0))

    monkeypatch.setattr(FakeSocket, "bind", anywhere)
    with pytest.raises(UserError, match=text) as caught:
        bind("--x", LOOPBACK, 8070)
    assert caught.value.__cause__ is not None
    assert all(sock.fileno() == -1 for sock in FakeSocket.made)


def test_bind_must_pass_over_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoIpv6(socket.socket):
        def __init__(self, family: int, kind: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "no IPv6")
            super().__init__(family, kind)

    monkeypatch.setattr("isthmus.web.sockets.socket.socket", NoIpv6)
    (sock,) = bind("--x", LOOPBACK, 0)
    with closing(sock):
        assert sock.family == socket.AF_INET


def test_bind_must_raise_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: int) -> socket.socket:
        raise OSError(errno.EMFILE, "too many files")

    monkeypatch.setattr("isthmus.web.sockets.socket.socket", exhausted)
    with pytest.raises(OSError, match="too many files"):
        bind("--x", LOOPBACK, 0)


def test_bind_must_look_for_a_port_that_is_free_on_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 0 takes any on the first address; where the second has it taken, another is tried."""
    real, taken = sockets._try_bind, list[int]()

    def sometimes(flag: str, host: str, port: int) -> socket.socket | None:
        if host == "::1" and len(taken) < 3:
            taken.append(port)
            raise sockets._Taken(host, port)
        return real(flag, host, port)

    monkeypatch.setattr(sockets, "_try_bind", sometimes)
    bound = bind("--x", LOOPBACK, 0)
    assert len(taken) == 3
    assert len({sock.getsockname()[1] for sock in bound}) == 1
    for sock in bound:
        sock.close()


def test_bind_must_give_up_where_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(flag: str, host: str, port: int) -> socket.socket | None:
        raise sockets._Taken(host, 5)

    monkeypatch.setattr(sockets, "_try_bind", never)
    with pytest.raises(UserError, match="already in use"):
        bind("--x", LOOPBACK, 0)


def test_bound_ipv6_sockets_never_take_the_ipv4_port_too() -> None:
    bound = bind("--x", EVERYWHERE, 0)
    for sock in bound:
        if sock.family == socket.AF_INET6:
            assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        sock.close()
