"""`isthmus operator`: how flags and the configuration file make one set of options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from isthmus.app import operator
from isthmus.app.options import OperatorOptions
from isthmus.cli.operator import command
from isthmus.errors import UserError
from isthmus.runtime.manager import Exit

HEAD = "apiVersion: operator.config.dynamo.nvidia.com/v1alpha1\nkind: OperatorConfiguration\n"
FILE = (
    HEAD
    + """\
server:
  metrics: {bindAddress: 127.0.0.1, port: 9100}
  healthProbe: {bindAddress: "::1", port: 9101}
leaderElection: {enabled: true, id: dynamo.nvidia.com, namespace: kube-system}
namespace: {restricted: team-a}
logging: {level: warn, format: text}
multiCluster: {mcsImplementation: karmada}
"""
)
KUBECONFIG = """\
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""

Call = Callable[..., OperatorOptions]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Calls the command with a file's text and flags; returns the options that the operator would have. The
    logging that the command sets up is undone afterwards."""
    seen: list[OperatorOptions] = []

    async def run(options: OperatorOptions, **_: Any) -> Exit:
        seen.append(options)
        return Exit.STOPPED

    monkeypatch.setattr(operator, "run", run)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    def call(text: str, *flags: str) -> OperatorOptions:
        file = tmp_path / "config.yaml"
        file.write_text(text)
        with pytest.raises(SystemExit) as ended:
            command.main(
                [f"--kubeconfig={tmp_path / 'kubeconfig'}", f"--config={file}", *flags], standalone_mode=False
            )
        assert ended.value.code == 0
        return seen[-1]

    yield call
    structlog.reset_defaults()


def test_file_must_set_what_flags_do_not(call: Call) -> None:
    options = call(FILE)
    assert options.metrics == (("127.0.0.1",), 9100)
    assert options.health == (("::1",), 9101)
    assert options.leader_elect
    assert (options.lease_namespace, options.lease_name) == ("kube-system", "dynamo.nvidia.com")
    assert options.namespaces == ("team-a",)
    assert options.configuration.multi_cluster.mcs_implementation == "karmada"


def test_flags_must_win_over_the_file(call: Call) -> None:
    options = call(
        FILE,
        "--metrics-bind-address=0",
        "--health-probe-bind-address=:9200",
        "--no-leader-elect",
        "--leader-elect-name=mine",
        "--leader-elect-namespace=here",
        "--namespace=team-b",
        "--namespace=team-c",
    )
    assert options.metrics is None
    assert options.health is not None
    assert options.health[1] == 9200
    assert not options.leader_elect
    assert (options.lease_namespace, options.lease_name) == ("here", "mine")
    assert options.namespaces == ("team-b", "team-c")


def test_file_that_says_nothing_must_change_nothing(call: Call) -> None:
    options = call(HEAD)
    assert options.metrics == (("0.0.0.0", "::"), 8080)
    assert options.health == (("0.0.0.0", "::"), 8081)
    assert not options.leader_elect
    assert options.lease_name == "isthmus-operator"
    assert options.namespaces == ()


@pytest.mark.covers("PR-2", "T-60")
def test_bad_file_must_end_it_before_anything_starts(call: Call) -> None:
    with pytest.raises(
        UserError, match=r'multiCluster\.mcsImplementation: must be one of "", "mcs", "karmada"'
    ):
        call(FILE.replace(": karmada", ": Karmada"))


@pytest.mark.covers("PR-2", "GD-50")
def test_bad_file_must_be_told_line_by_line_with_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(FILE.replace(": karmada", ": Karmada") + "relais: {}\n")
    command_line = [sys.executable, "-m", "isthmus.cli.main", "operator", f"--config={file}"]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=15)
    assert done.returncode == 2
    first, *problems, hint = done.stderr.splitlines()
    assert first == f"error: --config {file}: 2 problem(s)"
    assert [line.split(":")[0].strip() for line in problems] == ["multiCluster.mcsImplementation", "relais"]
    assert hint.startswith("hint: ")
