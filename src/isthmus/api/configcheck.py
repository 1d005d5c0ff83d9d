"""Turns the configuration file's document into the types of configuration.py, or tells all that is wrong with
it.

app/configfile.py calls `decode`. A key that nobody knows is an error, since it is a typo; all problems are
found at once, each with its path and the values that are allowed (GD-50, PR-2). As upstream, null, an empty
text and the number 0 mean the default. `without_effect` names what was set and does nothing here. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from isthmus.api.configuration import (
    API_VERSION,
    KIND,
    Free,
    MultiCluster,
    OperatorConfiguration,
    Relay,
    Section,
)
from isthmus.api.pools import InvalidField, check_text, check_url
from isthmus.api.validation import Problem
from isthmus.errors import UserError


class InvalidConfiguration(UserError):
    """The file cannot be used. `problems` has everything that is wrong, in the order of the file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


USED: Final = frozenset(
    {
        "server.metrics.bindAddress",
        "server.metrics.port",
        "server.healthProbe.bindAddress",
        "server.healthProbe.port",
        *(f"leaderElection.{key}" for key in ("enabled", "id", "namespace")),
        "namespace.restricted",
        *(f"namespace.scope.{key}" for key in ("leaseDuration", "leaseRenewInterval")),
        *(f"infrastructure.{key}" for key in ("natsAddress", "etcdAddress")),
        *(f"infrastructure.{key}" for key in ("modelExpressURL", "prometheusEndpoint")),
        "discovery.backend",
        *(f"logging.{key}" for key in ("level", "format")),
        *(f"multiCluster.{key}" for key in ("mcsImplementation", "sweepOnClear")),
        *(f"multiCluster.{key}" for key in ("exportedLabels", "exportedAnnotations")),
        *(f"relay.{key}" for key in ("image", "command", "metadataRights")),
        *(f"relay.discovery.{key}" for key in ("url", "tokenSecret", "caConfigMap")),
        *(f"relay.location.{key}" for key in ("region", "zone", "datacenter")),
        "apiVersion",
        "kind",
    }
)
"""Paths of the settings that do something here."""

TEXTS: Final = dict[str, str]
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_ANNOTATIONS_BYTES: Final = 256 << 10
_WORDS: Final[dict[object, str]] = {
    str: "must be text",
    int: "must be a whole number",
    bool: "must be true or false",
    bool | None: "must be true or false",
    TEXTS: "must be a mapping of text to text",
    Free: "must be a mapping",
    tuple[str, ...]: "must be a list of texts",
}
S = TypeVar("S", bound=Section)


def decode(raw_document: object) -> OperatorConfiguration:
    """The configuration of a document as YAML or JSON gives it. Raises InvalidConfiguration with every
    problem."""
    problems: list[Problem] = []
    if not isinstance(raw_document, dict):
        raise InvalidConfiguration((Problem("(root)", f"must be a mapping; is {_shown(raw_document)}"),))
    configuration = _section(OperatorConfiguration, raw_document, "", problems)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw_document.get(key) != wanted:
            problems.append(Problem(key, f"must be {wanted}; is {_shown(raw_document.get(key))}"))
    problems += _rules(configuration)
    if problems:
        raise InvalidConfiguration(tuple(problems))
    return configuration


def without_effect(configuration: OperatorConfiguration) -> tuple[str, ...]:
    """Paths of what was set to something else than its default and does nothing here, sorted."""
    return tuple(sorted(path for path in _set(configuration, "") if path not in USED))


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1m30s`. Raises ValueError."""
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if digits == "0":
        return 0.0
    parts = _DURATION.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise ValueError(f"{text!r} is no duration")
    return sign * sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _section(of: type[S], raw: object, path: str, problems: list[Problem]) -> S:
    if not isinstance(raw, dict):
        if raw is not None:
            problems.append(Problem(path, f"must be a mapping; is {_shown(raw)}"))
        return of()
    known = {field.encode_name: field for field in fields(of)}
    values: dict[str, object] = {}
    for key, value in raw.items():
        where = f"{path}.{key}" if path else str(key)
        field = known.get(key)
        if field is None:
            problems.append(Problem(where, f"unknown key; there are: {', '.join(known)}"))
        elif isinstance(field.type, type) and issubclass(field.type, Section):
            values[field.name] = _section(field.type, value, where, problems)
        elif not _means_default(field, value):
            found, wrong = _leaf(field.type, value)
            problems += (Problem(f"{where}{inner}", text) for inner, text in wrong)
            if not wrong:
                values[field.name] = found
    return of(**values)


def _means_default(field: FieldInfo, value: object) -> bool:
    """Whether Go's defaulting would put the default here."""
    empty = value is None or value == "" or (value == 0 and not isinstance(value, bool))
    return empty and (value is None or type(value) is type(field.default))


def _leaf(of: Any, value: object) -> tuple[object, list[tuple[str, str]]]:
    """(value, []) or (None, what is wrong at which path below this one)."""
    allowed = get_args(of) if get_origin(of) is Literal else ()
    if allowed:
        if isinstance(value, str) and value in allowed:
            return value, []
        words = ", ".join(f'"{each}"' for each in allowed)
        return None, [("", f"must be one of {words}; is {_shown(value)}")]
    if of == TEXTS and isinstance(value, dict):
        wrong = [
            (f"[{key}]", problem)
            for key, each in value.items()
            for text in (key, each)
            for _, problem in _leaf(str, text)[1]
        ]
        return (None, wrong) if wrong else (value, [])
    try:
        return msgspec.convert(value, of), []
    except msgspec.ValidationError:
        hint = "; put it in quotes" if of is str and isinstance(value, bool | int | float) else ""
        return None, [("", f"{_WORDS[of]}; is {_shown(value)}{hint}")]


def _rules(configuration: OperatorConfiguration) -> Iterator[Problem]:
    server = configuration.server
    for name, port in (
        ("metrics", server.metrics.port),
        ("healthProbe", server.health_probe.port),
        ("webhook", server.webhook.port),
    ):
        if not 0 <= port <= 65535:
            yield Problem(f"server.{name}.port", f"must be 0 to 65535; is {port}")
    for name, address in (
        ("metrics", server.metrics.bind_address),
        ("healthProbe", server.health_probe.bind_address),
    ):
        if address and address != "localhost" and not _is_address(address):
            yield Problem(f"server.{name}.bindAddress", f"must be an IP address; is {_shown(address)}")
    election = configuration.leader_election
    if election.enabled and not election.id:
        yield Problem("leaderElection.id", "is required when leaderElection.enabled is true")
    for path, namespace in (
        ("leaderElection.namespace", election.namespace),
        ("namespace.restricted", configuration.namespace.restricted),
    ):
        if namespace and not _NAMESPACE.fullmatch(namespace):
            yield Problem(path, f"must be a namespace's name; is {_shown(namespace)}")
    yield from _duration_rules(configuration)
    yield from _exported_rules(configuration.multi_cluster)
    yield from _relay_rules(configuration.relay)


def _relay_rules(relay: Relay) -> Iterator[Problem]:
    if not relay.command:
        yield Problem("relay.command", "must have at least one word")
    discovery, location = relay.discovery, relay.location
    if discovery.url:
        try:
            check_url("url", discovery.url)
        except InvalidField as problem:
            text = str(problem).removeprefix("url: ")
            yield Problem("relay.discovery.url", f"{text}; is {_shown(discovery.url)}")
    for key, name in (("tokenSecret", discovery.token_secret), ("caConfigMap", discovery.ca_config_map)):
        if name and not (len(name) <= 253 and _SUBDOMAIN.fullmatch(name)):
            yield Problem(f"relay.discovery.{key}", f"must be an object's name; is {_shown(name)}")
        if name and not discovery.url:
            yield Problem(f"relay.discovery.{key}", "has no effect without relay.discovery.url")
    for key in ("region", "zone", "datacenter"):
        try:
            check_text(key, getattr(location, key), empty=True)
        except InvalidField as problem:
            yield Problem(f"relay.location.{key}", str(problem).removeprefix(f"{key}: "))


def _duration_rules(configuration: OperatorConfiguration) -> Iterator[Problem]:
    scope, grove = configuration.namespace.scope, configuration.orchestrators.grove
    found: dict[str, float] = {}
    for path, text in (
        ("namespace.scope.leaseDuration", scope.lease_duration),
        ("namespace.scope.leaseRenewInterval", scope.lease_renew_interval),
        ("orchestrators.grove.terminationDelay", grove.termination_delay),
    ):
        try:
            found[path] = parse_duration(text)
        except ValueError:
            yield Problem(path, f"must be a duration such as 30s or 1m30s; is {_shown(text)}")
    if found.get("orchestrators.grove.terminationDelay", 0) < 0:
        yield Problem("orchestrators.grove.terminationDelay", "must not be negative")
    if not configuration.namespace.restricted:
        return
    duration, renew = (
        found.get(f"namespace.scope.{key}", 1.0) for key in ("leaseDuration", "leaseRenewInterval")
    )
    for path, seconds in found.items():
        if path.startswith("namespace.scope.") and seconds <= 0:
            yield Problem(path, "must be more than 0 where namespace.restricted is set")
    if len(found) == 3 and 0 < duration <= renew:
        text = f"must be less than leaseDuration ({scope.lease_duration}); is {scope.lease_renew_interval}"
        yield Problem("namespace.scope.leaseRenewInterval", text)


def _exported_rules(multi_cluster: MultiCluster) -> Iterator[Problem]:
    for key, value in multi_cluster.exported_labels.items():
        path = f"multiCluster.exportedLabels[{key}]"
        if not _is_qualified(key):
            yield Problem(path, "is not a label's key: [PREFIX/]NAME")
        if value and not _NAME.fullmatch(value):
            text = "must be at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
            yield Problem(path, f"{text}; is {_shown(value)}")
    annotations = multi_cluster.exported_annotations
    for key in annotations:
        if not _is_qualified(key.lower()):
            yield Problem(
                f"multiCluster.exportedAnnotations[{key}]", "is not an annotation's key: [PREFIX/]NAME"
            )
    size = sum(len(text.encode()) for pair in annotations.items() for text in pair)
    if size > _MAX_ANNOTATIONS_BYTES:
        text = f"must have at most {_MAX_ANNOTATIONS_BYTES} bytes in all; has {size}"
        yield Problem("multiCluster.exportedAnnotations", text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def _set(section: Section, path: str) -> Iterator[str]:
    for field in fields(section):
        value = getattr(section, field.name)
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        if isinstance(value, Section):
            yield from _set(value, where)
        elif value != (field.default if field.default is not msgspec.NODEFAULT else {}):
            yield where


def _shown(value: object) -> str:
    """A value as people wrote it, cut where it is long."""
    text = "absent" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"
