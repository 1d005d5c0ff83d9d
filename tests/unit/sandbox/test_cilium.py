"""Cilium's processes are told who they are and where the store is; names are checked before any starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import cilium

FOLDER = Path("/sandbox/cilium")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("east", "West"), "'West': Cilium names clusters"),
        (("east", ""), "'': Cilium names clusters"),
        (("east", "w" * 33), "at most 32"),
        (("east", "-west"), "inner hyphens"),
        (("east", "east"), "all different: east, east"),
        (("east",), "2 clusters need as many names"),
    ],
)
def test_names_that_cilium_does_not_take_must_be_told(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        cilium.check_names(names, 2)


def test_names_at_their_limits_must_be_taken() -> None:
    cilium.check_names(("w" * 32, "a", "1-2"), 3)


def test_processes_must_share_the_store_and_nothing_else() -> None:
    first, second = (
        cilium.command(Path("/bin/c"), Path(f"/k{index}"), FOLDER, index=index, name=name)
        for index, name in enumerate(("east", "west"))
    )
    shared = set(first) & set(second)
    assert "--kvstore-opt=etcd.config=/sandbox/cilium/etcd.yaml" in shared
    assert {flag.partition("=")[0] for flag in set(first) - shared} == {
        "--k8s-kubeconfig-path",
        "--cluster-name",
        "--cluster-id",
        "--remote-clusters",
        "--clustermesh-config",
    }
    assert "--cluster-id=1" in first
    assert "--cluster-id=2" in second


def test_store_must_be_told_as_cilium_reads_it() -> None:
    # Cilium takes a file for a cluster's where this word is in it.
    assert cilium.store_file("http://127.0.0.1:1") == b"endpoints:\n- http://127.0.0.1:1\n"
