from __future__ import annotations

import pytest

from isthmus.errors import UserError
from isthmus.kube import proxies

PROXY = "http://127.0.0.1:9"
CLUSTER = "10.0.0.0/8,.svc,.cluster.local"


@pytest.mark.covers("R25")
@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("https://10.96.0.1:443", CLUSTER, True),
        ("https://11.96.0.1", CLUSTER, False),
        ("https://kubernetes.default.svc", CLUSTER, True),
        ("https://kubernetes.default.svc.cluster.local.", CLUSTER, True),
        ("https://svc", CLUSTER, False),
        ("https://svc", "svc", True),
        ("https://a.svc", "svc", True),
        ("https://asvc", "svc", False),
        ("https://a.svc", "*.svc", True),
        ("https://A.Example.COM", "example.com", True),
        ("https://anything", "*", True),
        ("https://a.b:6443", "a.b:6443", True),
        ("https://a.b:443", "a.b:6443", False),
        ("https://a.b", "a.b:443", True),
        ("http://a.b", "a.b:80", True),
        ("https://[fd00::1]:443", "fd00::/8", True),
        ("https://[fd00::1]:443", "[fd00::1]:443", True),
        ("https://[fd00::1]:443", "[fd00::1]:444", False),
        ("https://[fd00::1]:443", "fd00::1", True),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3", "2.3,1.2.3", False),
        ("https://10.1.2.3", "10.0.0.0/99,,  ,10.1.2.3", True),
        ("https://name", "10.0.0.0/8", False),
        ("https://localhost:6443", "", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://a.b", "", False),
    ],
)
def test_no_proxy_must_decide_as_go_does(url: str, no_proxy: str, direct: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxies.proxy_for(url, environ) == (None if direct else PROXY)


@pytest.mark.covers("R25")
@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "http://upper:1"),
        ({"https_proxy": "http://lower:1"}, "http://lower:1"),
        ({"HTTP_PROXY": "http://other:1"}, None),
        ({"https_proxy": "http://x:1", "no_proxy": "a.b"}, None),
        ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": ""}, None),
    ],
)
def test_proxy_variables_must_be_read_in_both_spellings(environ: dict[str, str], proxy: str | None) -> None:
    assert proxies.proxy_for("https://a.b", environ) == proxy


def test_plain_http_must_use_its_own_variable() -> None:
    assert proxies.proxy_for("http://a.b", {"HTTP_PROXY": PROXY}) == PROXY


@pytest.mark.parametrize("value", ["socks5://h:1", "http://", "http://h:port", "http://[::1"])
def test_unusable_proxy_must_be_refused_without_its_password(value: str) -> None:
    with pytest.raises(UserError, match="is not a proxy"):
        proxies.proxy_for("https://a.b", {"HTTPS_PROXY": value})
    with pytest.raises(UserError) as caught:
        proxies.checked("ftp://user:secret@h", "here")
    assert "secret" not in str(caught.value)
