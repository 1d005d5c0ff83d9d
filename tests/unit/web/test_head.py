from __future__ import annotations

import pytest

from isthmus.web.head import Head, Refused, parse_head
from isthmus.web.limits import Limits
from isthmus.web.routes import is_loopback


def parse(*lines: str) -> Head:
    return parse_head("\r\n".join(lines).encode("latin-1"), Limits())


def test_a_head_must_be_taken_apart() -> None:
    head = parse(
        "POST /a%20b/c?x=1&y=%26&x=&z HTTP/1.1",
        "Host: localhost:80",
        "X-Thing:  two words\t",
        "Content-Length: 7",
        "Expect: 100-Continue",
    )
    assert head.method == "POST"
    assert head.path == "/a b/c"
    assert head.query == (("x", "1"), ("y", "&"), ("x", ""), ("z", ""))
    assert head.header("x-thing") == "two words"
    assert head.header("absent") == ""
    assert (head.length, head.chunked, head.close, head.wants_continue) == (7, False, False, True)
    assert head.hosts == ("localhost:80",)


@pytest.mark.parametrize(
    ("version", "connection", "close"),
    [
        ("1.1", None, False),
        ("1.1", "close", True),
        ("1.1", "keep-alive, Close", True),
        ("1.1", "upgrade", False),
        ("1.0", None, True),
        ("1.0", "Keep-Alive", False),
        ("1.0", "keep-alive, close", True),
    ],
)
def test_a_head_must_say_whether_the_connection_ends(
    version: str, connection: str | None, close: bool
) -> None:
    lines = [f"GET / HTTP/{version}", "Host: a"]
    if connection is not None:
        lines.append(f"Connection: {connection}")
    assert parse(*lines).close is close


def test_an_absolute_target_must_name_its_host_too() -> None:
    head = parse("GET HTTP://Evil.example:1/x?y=z HTTP/1.1", "Host: localhost")
    assert (head.path, head.query, head.hosts) == ("/x", (("y", "z"),), ("localhost", "Evil.example:1"))
    assert parse("GET http://a HTTP/1.1", "Host: a").path == "/"
    assert parse("GET http://a?x=1 HTTP/1.1", "Host: a").query == (("x", "1"),)


@pytest.mark.parametrize(
    "target", ["http:///x", "http://", "ftp://a/", "a:1", "*", "http://a/#f", "http://u@a/"]
)
def test_an_odd_target_must_be_refused(target: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(f"GET {target} HTTP/1.1", "Host: a")
    assert caught.value.status == 400


def test_expectations_of_http_1_0_must_be_ignored() -> None:
    assert not parse("POST / HTTP/1.0", "Expect: 100-continue").wants_continue


@pytest.mark.parametrize(
    ("hosts", "loopback"),
    [
        ((), False),
        (("localhost",), True),
        (("localhost", "evil"), False),
        (("[::1]:1", "127.0.0.1"), True),
        (("[::1",), False),
        (("::1",), False),
        (("localhost:",), True),
        (("127.0.0.1:80:80",), False),
        (("127.0.0.2",), False),
        (("localhost.",), False),
        (("LOCALHOST",), True),
    ],
)
def test_only_loopback_must_be_loopback(hosts: tuple[str, ...], loopback: bool) -> None:
    assert is_loopback(hosts) is loopback
