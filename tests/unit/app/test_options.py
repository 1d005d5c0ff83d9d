"""The operator's settings as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.app.options import (
    CONTROLLERS,
    Durations,
    OperatorOptions,
    choose_controllers,
    choose_namespaces,
)
from isthmus.errors import UserError
from isthmus.kube.config import ClusterConfig

CONFIG = ClusterConfig(server="https://127.0.0.1:1")


def options(**given: Any) -> OperatorOptions:
    return OperatorOptions(config=CONFIG, **given)


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"workers": 0}, "--workers"),
        ({"workers": -3}, "--workers"),
        ({"qps": -1.0}, "--kube-api-qps"),
        ({"burst": -1}, "--kube-api-burst"),
        ({"durations": Durations(10, 10, 2)}, "--leader-elect-lease-duration"),
        ({"durations": Durations(15, 10, 0)}, "--leader-elect-retry-period"),
        ({"durations": Durations(15, 2, 2)}, "--leader-elect-renew-deadline"),
    ],
)
@pytest.mark.covers("MS-114")
def test_bad_setting_must_name_its_flag(given: dict[str, Any], flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        options(**given)


def test_defaults_must_be_valid() -> None:
    assert options().controllers == set(CONTROLLERS)


def test_two_listeners_must_not_want_one_port() -> None:
    health, metrics = (("127.0.0.1",), 8070), (("127.0.0.1",), 8070)
    with pytest.raises(UserError, match="--health-probe-bind-address and --metrics-bind-address"):
        options(health=health, metrics=metrics)
    with pytest.raises(UserError, match="--debug-port both want port 8070"):
        options(health=health, debug_port=8070)


@pytest.mark.covers("MS-298")
@pytest.mark.parametrize("text", ["modelserving", " modelserving ", "+modelserving"])
def test_controllers_must_be_chosen_by_name(text: str) -> None:
    assert choose_controllers(text).controllers == {"modelserving"}


@pytest.mark.covers("MS-298")
@pytest.mark.parametrize("text", ["*", "modelserving,*", "*,"])
def test_star_must_choose_every_controller(text: str) -> None:
    assert choose_controllers(text).controllers == set(CONTROLLERS)


@pytest.mark.covers("MS-298")
@pytest.mark.parametrize(
    "text", ["-modelserving", ",".join(["*", *(f"-{n}" for n in CONTROLLERS)]), "", ",,"]
)
def test_choice_that_leaves_no_controller_must_be_refused(text: str) -> None:
    with pytest.raises(UserError, match="--controllers"):
        choose_controllers(text)


@pytest.mark.parametrize("text", ["modelservings", "modelserving,invalid", "-x", "*modelserving"])
def test_unknown_controller_must_be_named(text: str) -> None:
    with pytest.raises(UserError, match="is no controller; there are: modelserving"):
        choose_controllers(text)


def test_first_entry_that_names_a_controller_must_decide() -> None:
    assert choose_controllers("modelserving,-modelserving").controllers == {"modelserving"}
    with pytest.raises(UserError):
        choose_controllers("-modelserving,modelserving")


def test_namespaces_must_be_kept_once_in_order() -> None:
    assert choose_namespaces(["b", "a", "b"]) == ("b", "a")


@pytest.mark.parametrize("name", ["", "Team", "a_b", "-a", "a-", "a.b", "ä", "x" * 64, "a/b", "$(id)"])
def test_impossible_namespace_must_be_refused(name: str) -> None:
    with pytest.raises(UserError, match="--namespace"):
        choose_namespaces([name])
