"""`isthmus sandbox` says what is wrong before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isthmus.cli.sandbox import command
from isthmus.errors import UserError
from isthmus.sandbox.settings import Folder


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_SANDBOX", raising=False)
    monkeypatch.delenv("ISTHMUS_CLUSTER", raising=False)
    return tmp_path / "isthmus" / "sandbox"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def refusal(*arguments: str) -> str:
    error = call(*arguments).exception
    assert isinstance(error, UserError), error
    return str(error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("up", "--clusters", "0"), "--clusters 0: must be 1 to 16"),
        (("up", "--mcs", "cilium"), "--mcs cilium joins clusters: --clusters 2 or more"),
        (("up", "--nodes", "1001"), "--nodes 1001: must be 1 to 1000"),
        (("up", "--name", "../x"), "--name '../x'"),
        (("up", "--ready-delay", "-1"), "must not be negative"),
        (("status",), "no sandbox runs"),
        (("status", "--name", "x"), "no sandbox named 'x'"),
        (("down", "--name", "x"), "no sandbox named 'x' runs"),
        (("kubeconfig", "--name", "x"), "no sandbox named 'x' runs"),
        (("kubectl", "get", "pods"), "no sandbox named 'default' runs"),
        (("logs", "etcd"), "'default' has no log 'etcd'"),
        (("fault", "pod", "restart"), "no sandbox named 'default' runs"),
        (("demo", "--keep", "--kubeconfig", "f"), "--keep and --kubeconfig"),
        (("demo", "--kubeconfig", "/nowhere/f"), "/nowhere/f"),
    ],
)
def test_wrong_request_must_be_told(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_CONTROLPLANE", "/bin/true")
    assert words in refusal(*arguments)


def test_cluster_that_is_no_number_must_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CLUSTER", "first")
    assert "ISTHMUS_CLUSTER=first" in refusal("kubectl", "get", "pods")


def test_build_must_print_the_programs_that_a_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CONTROLPLANE", "/bin/true")
    assert call("build").output == "/bin/true\n"


def test_logs_must_show_the_last_lines(state_home: Path) -> None:
    folder = Folder(state_home / "default")
    folder.logs.mkdir(parents=True)
    folder.log("etcd").write_text("".join(f"{number}\n" for number in range(10)))
    assert call("logs").output == "etcd\n"
    assert call("logs", "etcd", "--lines", "2").output == "8\n9\n"


def test_help_of_kubectl_must_be_kubectls_own() -> None:
    assert "no sandbox named 'default' runs" in refusal("kubectl", "--help")
