"""The contract between relays, the discovery service and routers: what is taken, and what is refused how."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api import pools
from isthmus.api.pools import InvalidField, PoolKey


def _raw(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "cluster_id": "east",
        "namespace": "serving",
        "name": "chat",
        "relay": {"url": "http://10.0.0.7:5561", "incarnation": "6f1c", "revision": 42},
        "models": [{"id": "example/tiny", "aliases": ["tiny"], "max_concurrency": 256}],
        "frontends": [{"url": "http://10.0.0.9:8000", "service": "chat-frontend"}],
        "someday": True,
    } | changes


def _read(**changes: Any) -> pools.Registration:
    return pools.read_registration(msgspec.json.encode(_raw(**changes)))


def test_registration_must_be_read_with_its_defaults_and_without_unknown_keys() -> None:
    found = _read()
    assert found.key == PoolKey("east", "serving", "chat")
    assert found.models[0].names == ("example/tiny", "tiny")
    assert found.models[0].ready
    assert found.location == pools.Location()


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("schema", {"schema": 2}),
        ("cluster_id", {"cluster_id": ""}),
        ("cluster_id", {"cluster_id": " east"}),
        ("cluster_id", {"cluster_id": "ea\x00st"}),
        ("cluster_id", {"cluster_id": "e" * 254}),
        ("cluster_id", {"cluster_id": 7}),
        ("namespace", {"namespace": "Serving"}),
        ("name", {"name": "chat.large"}),
        ("name", {"name": "c" * 64}),
        ("relay.url", {"relay": {"url": "ftp://10.0.0.7", "incarnation": "a"}}),
        ("relay.incarnation", {"relay": {"url": "http://10.0.0.7", "incarnation": ""}}),
        ("relay.revision", {"relay": {"url": "http://10.0.0.7", "incarnation": "a", "revision": -1}}),
        ("location.region", {"location": {"region": "a\nb"}}),
        ("models[0].id", {"models": [{"id": ""}]}),
        ("models[1].aliases[0]", {"models": [{"id": "a"}, {"id": "b", "aliases": ["a"]}]}),
        ("models[0].max_concurrency", {"models": [{"id": "a", "max_concurrency": 0}]}),
        ("models", {"models": [{"id": str(number)} for number in range(257)]}),
        ("frontends[1].url", {"frontends": [{"url": "http://a"}, {"url": "http://u:p@a"}]}),
        ("frontends", {"frontends": [{"url": "http://a"}] * 257}),
    ],
)
@pytest.mark.covers("PW-3", "DS-5")
def test_registration_must_be_refused_with_the_field_at_fault(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        _read(**changes)
    assert caught.value.field == field


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"null", b'{"a":"\xff"}', b"[" * 100_000])
def test_body_that_is_no_registration_must_be_an_invalid_field(body: bytes) -> None:
    with pytest.raises(InvalidField):
        pools.read_registration(body)


@pytest.mark.parametrize(
    "url",
    [
        "http://", "//a", "http://a?x=1", "http://a#b", "http://a?", "http://a:99999", "http://[::1", "http://ä",
        "http://a b", "javascript:alert(1)",
    ],
)  # fmt: skip
@pytest.mark.covers("PW-3")
def test_url_must_be_refused_where_it_is_more_than_a_place(url: str) -> None:
    with pytest.raises(InvalidField):
        pools.check_url("url", url)


@pytest.mark.parametrize("url", ["http://10.0.0.9:8000", "https://chat.example", "http://[fd00::1]:80/v2"])
def test_url_of_a_place_must_be_taken(url: str) -> None:
    pools.check_url("url", url)


@pytest.mark.covers("DS-6")
def test_pool_id_must_be_framed_so_that_parts_never_run_together() -> None:
    assert PoolKey("east", "serving", "chat").pool_id == (
        "pool-v1s-9994d6b1820bf19607d7bcb923bd337000f23c874160023d433bcd583a6b21b5"
    )
    assert PoolKey("a", "bc", "d").pool_id != PoolKey("ab", "c", "d").pool_id


def _list(**changes: Any) -> bytes:
    key = PoolKey("east", "serving", "chat")
    pool = {"pool_id": key.pool_id, "cluster_id": "east", "namespace": "serving", "name": "chat"} | changes
    return msgspec.json.encode({"version": "b-1", "complete": True, "mode": "mcs", "pools": [pool]})


def test_list_must_be_refused_where_one_of_its_pools_is_bad() -> None:
    assert pools.read_pool_list(_list()).pools[0].key == PoolKey("east", "serving", "chat")
    for field, value in (("pool_id", "pool-v1s-00"), ("frontend_urls", ["file:///etc/passwd"])):
        with pytest.raises(InvalidField) as caught:
            pools.read_pool_list(_list(**{field: value}))
        assert caught.value.field.startswith(f"pools[0].{field}")


@pytest.mark.covers("D-15")
def test_address_of_version_6_must_be_in_brackets() -> None:
    assert pools.endpoint_url("http", "fd00::1", 8000) == "http://[fd00::1]:8000"
    assert pools.endpoint_url("http", "10.0.0.9", 8000) == "http://10.0.0.9:8000"
