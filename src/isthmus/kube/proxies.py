"""Which proxy, if any, a URL is reached through: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go reads them.

config.py asks once per cluster, so an operator follows the same variables as kubectl and client-go (R25).
A variable's upper-case spelling wins over its lower-case one. NO_PROXY is a list with commas; an item is `*`
(everything), an address, a CIDR (`10.0.0.0/8`, `fd00::/8`), or a domain: `svc` and `example.com` match that
name and all below it, `.svc` only those below it; each but a CIDR may end in `:port`. Loopback is never
proxied. Pure: the environment is an argument.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from isthmus.errors import UserError

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
SCHEMES: Final = ("http", "https")


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy URL for `url` by the variables in `environ`, or None for a direct connection.

    Raises UserError where the variable holds something that is not an http or https proxy.
    """
    parts = urlsplit(url)
    variable = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    proxy = _read(environ, variable)
    if not proxy or _is_direct(parts, _read(environ, "NO_PROXY")):
        return None
    return checked(proxy, variable)


def checked(proxy: str, where: str) -> str:
    """`proxy` as a full URL; a bare `host:port` means http, as Go has it.

    Raises UserError, naming `where`, for anything but an http or https URL with a host.
    """
    full = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in SCHEMES and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise UserError(
            f"{where}: {_without_password(full)!r} is not a proxy that can be used",
            hint="give an http:// or https:// URL with a host; SOCKS is not supported",
        )
    return full


def _read(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _is_direct(url: SplitResult, no_proxy: str) -> bool:
    host = (url.hostname or "").rstrip(".").lower()
    port = url.port or _DEFAULT_PORTS.get(url.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(item.strip().lower(), host, address, port) for item in no_proxy.split(","))


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _matches(item: str, host: str, address: _Address | None, port: int) -> bool:
    if not item:
        return False
    if item == "*":
        return True
    if "/" in item:
        try:
            return address is not None and address in ipaddress.ip_network(item, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split_port(item)
    if wanted_port is not None and wanted_port != port:
        return False
    wanted = _address(name)
    if wanted is not None:
        return address == wanted
    if address is not None:
        return False
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _split_port(item: str) -> tuple[str, int | None]:
    if item.startswith("["):
        name, _, rest = item[1:].partition("]")
        port = rest.removeprefix(":")
    elif item.count(":") == 1:
        name, _, port = item.partition(":")
    else:
        return item, None
    return name, int(port) if port.isdigit() else None
