"""`isthmus sandbox up --mcs` leaves joined clusters behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.sandbox import Sandbox, leftovers

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

PARTS = {
    "cilium": {"cilium-0", "cilium-1"},
    "karmada": {
        "karmada-aggregated-apiserver",
        "karmada-webhook",
        "karmada-controller-manager",
        "karmada-scheduler",
    },
}


@pytest.mark.parametrize("mcs", sorted(PARTS))
def test_clusters_must_be_joined_when_up_returns(
    mcs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ["up", "--name", "joined", "--clusters", "2", "--mcs", mcs, "--detach"]
    command = [sys.executable, "-m", "isthmus.cli.main", "sandbox", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    sandbox = Sandbox.attach("joined")
    try:
        assert done.stdout.count("export KUBECONFIG=") == 2
        components = sandbox.record.components
        assert {name: components[name].state for name in PARTS[mcs]} == dict.fromkeys(PARTS[mcs], "running")
        sandbox.cluster(1).request("/apis/multicluster.x-k8s.io/v1alpha1/serviceexports")
    finally:
        sandbox.stop()
    assert leftovers.running() == []
