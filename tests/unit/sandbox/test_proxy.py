"""What a client asks the sandbox's proxy for, and what goes on to the server."""

from __future__ import annotations

import pytest

from isthmus.sandbox.proxy import BadRequest, Order, read_order


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((line, *headers, "", "")).encode()


def test_request_must_go_on_in_origin_form_without_what_speaks_to_the_proxy() -> None:
    order = read_order(
        head(
            "POST http://198.18.1.7:8000/v1/x?a=b HTTP/1.1",
            "Host: 198.18.1.7:8000",
            "Proxy-Connection: keep-alive",
            "proxy-authorization: Basic eDp5",
            "CONNECTION: keep-alive",
            "Content-Length: 3",
        )
    )
    sent = head("POST /v1/x?a=b HTTP/1.1", "Host: 198.18.1.7:8000", "Content-Length: 3", "Connection: close")
    assert order == Order("198.18.1.7", 8000, sent)


def test_port_and_path_must_have_their_defaults() -> None:
    order = read_order(head("GET http://web.n HTTP/1.1"))
    assert order == Order("web.n", 80, head("GET / HTTP/1.1", "Connection: close"))


def test_tunnel_must_be_told_by_connect() -> None:
    assert read_order(head("CONNECT 198.18.1.7:443 HTTP/1.1", "Host: x")) == Order("198.18.1.7", 443, None)


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET https://web.n/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://web.n:x/ HTTP/1.1",
        "GET http://web.n/ HTTP/2",
        "GET http://web.n/",
        "CONNECT web.n HTTP/1.1",
        "CONNECT :80 HTTP/1.1",
        "",
    ],
)
def test_what_cannot_be_carried_must_be_refused(line: str) -> None:
    with pytest.raises(BadRequest):
        read_order(head(line))


def test_target_that_is_not_ascii_must_be_refused() -> None:
    with pytest.raises(BadRequest):
        read_order("GET http://wéb.n/ HTTP/1.1\r\n\r\n".encode())
