"""A pod of Isthmus' own image -> the process that runs in its stead: command, environment, ports, probes.

machine.py decodes the whole pod as a `Manifest`, which simulated pods never need, and calls `compose`. Only
the first container counts, and only where its image is IMAGE with any tag; other containers of the pod are
claims as everywhere. What cannot be done here is a CannotStart with the reason that a kubelet would write.
Pure: what Secrets and ConfigMaps hold is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from isthmus.api.meta import Frozen, Object
from isthmus.errors import UserError
from isthmus.sandbox.podstatus import HOST_ADDRESS

IMAGE: Final = "sandbox.invalid/isthmus"
"""The repository of the image whose containers are real. `.invalid` is nobody's (RFC 6761)."""
PROGRAMS: Final = {"isthmus": "isthmus.cli.main"}
PYTHONS: Final = ("python", "python3")

_REFERENCE: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class CannotStart(UserError):
    """Why a container does not start: `reason` as in state.waiting, and the text."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class FieldRef(Frozen, frozen=True, kw_only=True):
    """env[].valueFrom.fieldRef."""

    field_path: str


class KeyRef(Frozen, frozen=True, kw_only=True):
    """env[].valueFrom.secretKeyRef and configMapKeyRef."""

    name: str = ""
    key: str
    optional: bool = False


class ValueFrom(Frozen, frozen=True, kw_only=True):
    """env[].valueFrom."""

    field_ref: FieldRef | None = None
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None


class EnvVar(Frozen, frozen=True, kw_only=True):
    """containers[].env[]."""

    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class Port(Frozen, frozen=True, kw_only=True):
    """containers[].ports[]."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class HttpGet(Frozen, frozen=True, kw_only=True):
    """A probe's httpGet."""

    port: int | str
    path: str = "/"
    scheme: str = "HTTP"


class TcpSocket(Frozen, frozen=True, kw_only=True):
    """A probe's tcpSocket."""

    port: int | str


class Probe(Frozen, frozen=True, kw_only=True):
    """A probe, after the API server's defaults. One of another kind always succeeds here."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    failure_threshold: int = 3
    success_threshold: int = 1


class RealContainer(Frozen, frozen=True, kw_only=True):
    """containers[0] of a pod that runs."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    ports: tuple[Port, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None


class ManifestSpec(Frozen, frozen=True, kw_only=True):
    """spec of a pod that runs."""

    containers: tuple[RealContainer, ...]
    service_account_name: str = "default"
    node_name: str = ""
    restart_policy: str = "Always"


class Manifest(Object, frozen=True, kw_only=True):
    """A pod that runs."""

    spec: ManifestSpec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A probe with its port found. `path` is None for one that only connects; `port` None always succeeds."""

    port: int | None
    path: str | None
    delay_s: float
    period_s: float
    timeout_s: float
    failures: int
    successes: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `module` and `argv` as for `python -m`; `ports` are the pod's; `restart` its policy."""

    module: str
    argv: tuple[str, ...]
    env: dict[str, str]
    ports: tuple[int, ...]
    restart: str = "Always"
    startup: Check | None = None
    liveness: Check | None = None
    readiness: Check | None = None


Values = Mapping[tuple[str, str], Mapping[str, str]]
"""What Secrets and ConfigMaps hold, by (plural, name)."""


def is_real(image: str) -> bool:
    """Whether a container of this image runs as a process."""
    return image == IMAGE or image.startswith((f"{IMAGE}:", f"{IMAGE}@"))


def wanted_values(pod: Manifest) -> set[tuple[str, str]]:
    """The Secrets and ConfigMaps that its environment needs."""
    return {
        (plural, ref.name)
        for each in pod.spec.containers[0].env
        if each.value_from is not None
        for plural, ref in _key_refs(each.value_from)
    }


def compose(pod: Manifest, *, address: str, values: Values) -> Start:
    """See the module. Raises CannotStart."""
    container = pod.spec.containers[0]
    env: dict[str, str] = {}
    for each in container.env:
        value = expand(each.value, env) if each.value_from is None else _look_up(pod, each, address, values)
        if value is not None:
            env[each.name] = value
    words = [expand(word, env) for word in (*(container.command or ("isthmus",)), *container.args)]
    module, argv = _module(words)
    return Start(
        module=module,
        argv=argv,
        env=env,
        ports=tuple(each.container_port for each in container.ports if each.protocol == "TCP"),
        restart=pod.spec.restart_policy,
        startup=_check(container.startup_probe, container.ports),
        liveness=_check(container.liveness_probe, container.ports),
        readiness=_check(container.readiness_probe, container.ports),
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value where there is one, `$$` a dollar sign; all else stays."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def _module(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    program, *rest = words
    name = program.rpartition("/")[2]
    if name in PROGRAMS:
        return PROGRAMS[name], tuple(rest)
    if name in PYTHONS and len(rest) >= 2 and rest[0] == "-m":
        return rest[1], tuple(rest[2:])
    raise CannotStart(
        "RunContainerError",
        f"the sandbox runs `isthmus ...` and `python -m MODULE ...` of this image, not {program!r}",
    )


def _look_up(pod: Manifest, variable: EnvVar, address: str, values: Values) -> str | None:
    source = variable.value_from
    assert source is not None
    for plural, ref in _key_refs(source):
        found = values.get((plural, ref.name), {}).get(ref.key)
        if found is None and not ref.optional:
            raise CannotStart(
                "CreateContainerConfigError", f"there is no key {ref.key!r} in {plural} {ref.name!r}"
            )
        return found
    if source.field_ref is not None:
        return _field(pod, source.field_ref.field_path, address)
    raise CannotStart(
        "CreateContainerConfigError", f"the sandbox cannot read the value of {variable.name} from there"
    )


def _key_refs(source: ValueFrom) -> list[tuple[str, KeyRef]]:
    found = (("secrets", source.secret_key_ref), ("configmaps", source.config_map_key_ref))
    return [(plural, ref) for plural, ref in found if ref is not None]


def _field(pod: Manifest, path: str, address: str) -> str:
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": HOST_ADDRESS,
    }
    if path in plain:
        return plain[path]
    keyed = _KEYED.fullmatch(path)
    if keyed is None:
        raise CannotStart("CreateContainerConfigError", f"the sandbox knows no field {path}")
    return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")


def _check(probe: Probe | None, ports: Sequence[Port]) -> Check | None:
    if probe is None:
        return None
    port: int | str | None = None
    path = None
    if probe.http_get is not None:
        port, path = probe.http_get.port, probe.http_get.path
    elif probe.tcp_socket is not None:
        port = probe.tcp_socket.port
    if isinstance(port, str):
        port = next((each.container_port for each in ports if each.name == port), -1)
    return Check(
        port=port,
        path=path,
        delay_s=probe.initial_delay_seconds,
        period_s=max(1, probe.period_seconds),
        timeout_s=max(1, probe.timeout_seconds),
        failures=max(1, probe.failure_threshold),
        successes=max(1, probe.success_threshold),
    )
