"""A pod of our image becomes the process that its manifest describes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.sandbox.manifest import (
    IMAGE,
    CannotStart,
    Check,
    Manifest,
    Start,
    Values,
    compose,
    expand,
    is_real,
    wanted_values,
)

ADDRESS = "198.18.1.7"


def pod(restart: str = "Always", **container: Any) -> Manifest:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
            "spec": {
                "containers": [{"name": "main", "image": f"{IMAGE}:dev", **container}],
                "serviceAccountName": "account",
                "nodeName": "node-1",
                "restartPolicy": restart,
            },
        },
        Manifest,
    )


def composed(values: Values | None = None, **container: Any) -> Start:
    return compose(pod(**container), address=ADDRESS, values=values or {})


def from_field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("image", "real"),
    [
        (IMAGE, True),
        (f"{IMAGE}:dev", True),
        (f"{IMAGE}@sha256:0", True),
        (f"{IMAGE}-more:dev", False),
        (f"{IMAGE}/more", False),
        ("example.invalid/isthmus:dev", False),
        ("", False),
    ],
)
def test_image_must_be_told_by_its_repository(image: str, real: bool) -> None:
    assert is_real(image) is real


@pytest.mark.parametrize(
    ("command", "args", "module", "argv"),
    [
        (["isthmus", "relay"], ["--bind", "0.0.0.0:1"], "isthmus.cli.main", ("relay", "--bind", "0.0.0.0:1")),
        (["/usr/bin/isthmus"], ["router"], "isthmus.cli.main", ("router",)),
        ([], ["discovery"], "isthmus.cli.main", ("discovery",)),
        (["python", "-m", "some.module", "-x"], [], "some.module", ("-x",)),
        (["python3"], ["-m", "some.module"], "some.module", ()),
    ],
)
def test_command_must_become_a_module(
    command: list[str], args: list[str], module: str, argv: tuple[str, ...]
) -> None:
    start = composed(command=command, args=args)
    assert (start.module, start.argv) == (module, argv)


@pytest.mark.parametrize("command", [["sh", "-c", "true"], ["python", "x.py"], ["python", "-m"]])
def test_other_commands_must_be_refused_as_a_kubelet_would(command: list[str]) -> None:
    with pytest.raises(CannotStart, match=command[0]) as refused:
        composed(command=command)
    assert refused.value.reason == "RunContainerError"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "x"),
        ("metadata.annotations['none']", ""),
        ("status.podIP", ADDRESS),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "account"),
    ],
)
def test_fields_of_the_pod_must_come_into_its_environment(path: str, value: str) -> None:
    assert composed(env=[from_field(path)]).env == {"X": value}


def test_unknown_field_must_be_refused() -> None:
    with pytest.raises(CannotStart, match=r"spec\.hostname"):
        composed(env=[from_field("spec.hostname")])


def test_values_must_refer_to_those_before_them_and_commands_to_all() -> None:
    env = [{"name": "A", "value": "$(B)1"}, {"name": "B", "value": "$(A)2"}, {"name": "C", "value": "$$(A)"}]
    start = composed(env=env, command=["isthmus", "$(B)"], args=["$(NONE)"])
    assert start.env == {"A": "$(B)1", "B": "$(B)12", "C": "$(A)"}
    assert start.argv == ("$(B)12", "$(NONE)")


def test_expansion_must_leave_what_is_no_reference() -> None:
    assert expand("$A $(A) $$(A) $$$(A) ${A} $( A)", {"A": "1"}) == "$A 1 $(A) $1 ${A} $( A)"


def test_values_of_secrets_and_config_maps_must_be_asked_for_and_used() -> None:
    env = [
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
    ]
    assert wanted_values(pod(env=env)) == {("secrets", "s"), ("configmaps", "c")}
    assert composed({("secrets", "s"): {"token": "x"}}, env=env).env == {"T": "x"}
    with pytest.raises(CannotStart, match=r"'token' in secrets 's'") as refused:
        composed(env=env)
    assert refused.value.reason == "CreateContainerConfigError"


def test_probes_must_find_ports_by_name_and_number() -> None:
    start = composed(
        ports=[{"name": "http", "containerPort": 8000}, {"containerPort": 53, "protocol": "UDP"}],
        readinessProbe={"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2},
        livenessProbe={"tcpSocket": {"port": 8000}},
        startupProbe={"exec": {"command": ["true"]}},
    )
    assert start.ports == (8000,)
    assert start.readiness == Check(
        port=8000, path="/health", delay_s=0, period_s=2, timeout_s=1, failures=3, successes=1
    )
    assert start.liveness is not None
    assert start.liveness.path is None
    assert start.startup is not None
    assert start.startup.port is None


def test_restart_policy_must_be_kept() -> None:
    assert compose(pod("Never"), address=ADDRESS, values={}).restart == "Never"
