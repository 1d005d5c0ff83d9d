"""What a relay may be told, and what is refused by its flag."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pools import Location
from isthmus.errors import UserError
from isthmus.relay.options import DiscoveryOptions, RelayOptions, advertised, parse_aliases
from isthmus.relay.plan.model import SERVING
from tests.support.relayfacts import options, selection

LOOPBACK = ("127.0.0.1",)


@pytest.mark.covers("RL-2")
@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"cluster_id": ""}, "--cluster-id"),
        ({"cluster_id": "one "}, "--cluster-id"),
        ({"cluster_id": "a\nb"}, "--cluster-id"),
        ({"selection": selection(name="")}, "--pool-name"),
        ({"selection": selection(namespace="")}, "--pool-namespace"),
        ({"selection": selection(name="a.b")}, "--name"),
        ({"system": None}, "--bind"),
        ({"bind": (LOOPBACK, 8081)}, "port 8081"),
        ({"location": Location(region="a\n")}, "--location.region"),
        ({"max_concurrency": 0}, "--max-concurrency"),
        ({"discovery": DiscoveryOptions(url="http://d"), "advertise": ""}, "--discovery"),
    ],
)
def test_option_that_cannot_be_must_be_refused_by_its_flag(changes: dict[str, Any], flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        options(**changes)


@pytest.mark.parametrize("url", ["ftp://d", "http://u:p@d", "d:80", "http://d?x=1", ""])
def test_discovery_must_be_a_plain_url(url: str) -> None:
    with pytest.raises(UserError, match="--discovery"):
        DiscoveryOptions(url=url)


@pytest.mark.covers("RL-8")
def test_each_run_must_have_an_incarnation_of_its_own() -> None:
    assert options().incarnation != options().incarnation
    assert len(options().incarnation) == 16


def test_settings_must_name_the_pools_own_namespace() -> None:
    assert options().settings.namespace == "serving-east"
    assert options(selection=selection(namespaces=("x", "y"))).settings.namespace == "x"
    serving: RelayOptions = options(selection=selection(kind=SERVING, namespaces=("x",)))
    assert serving.settings.namespace == "serving-east"


@pytest.mark.parametrize(
    ("url", "bind", "pod_ip", "expected"),
    [
        ("http://east.example/relay/", None, "10.0.0.7", "http://east.example/relay"),
        ("", (("0.0.0.0",), 5561), "10.0.0.7", "http://10.0.0.7:5561"),
        ("", (("0.0.0.0",), 5561), "fd00::7", "http://[fd00::7]:5561"),
        ("", (("10.0.0.9",), 5561), "", "http://10.0.0.9:5561"),
        ("", (("0.0.0.0",), 5561), "", ""),
        ("", (("0.0.0.0", "::"), 5561), "", ""),
        ("", (("0.0.0.0",), 5561), "nonsense", ""),
        ("", None, "10.0.0.7", ""),
    ],
)
def test_address_for_routers_must_be_told_or_the_pods(
    url: str, bind: Any, pod_ip: str, expected: str
) -> None:
    assert advertised(url, bind, pod_ip) == expected


def test_address_for_routers_must_be_a_url() -> None:
    with pytest.raises(UserError, match="--advertise"):
        advertised("10.0.0.7:5561", None, "")


def test_aliases_must_be_read_by_model() -> None:
    assert parse_aliases("--alias", ("t=a/b", "u=a/b", "x=c=d")) == {"a/b": ("t", "u"), "c=d": ("x",)}


@pytest.mark.parametrize(
    "words", [("a",), ("=b",), ("a=",), ("a=b", "a=c"), tuple(f"a{number}=m" for number in range(65))]
)
def test_alias_that_is_none_must_be_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="--alias"):
        parse_aliases("--alias", words)
