"""Karmada's parts are told where they listen, and members are counted before anything starts."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import cast

import msgspec
import pytest

from isthmus.errors import UserError
from isthmus.sandbox import Sandbox, build, karmada
from isthmus.sandbox.settings import Folder, Spec

HOOKS = """\
kind: MutatingWebhookConfiguration
webhooks:
  - clientConfig:
      url: https://karmada-webhook.karmada-system.svc:443/mutate-work
      caBundle: {{caBundle}}
---
kind: ValidatingWebhookConfiguration
webhooks: []
---
"""


class Three:
    """As much of a sandbox as is looked at first."""

    clusters = (0, 1, 2)

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        programs = build.single(Path("/controlplane"))
        self.folder.write_private(self.folder.spec, msgspec.json.encode(Spec(name="x", programs=programs)))


@pytest.mark.parametrize("members", [(), ("east",), ("east", "east"), ("east", "west", "north")])
def test_members_that_are_not_the_other_clusters_must_be_told(
    members: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="3 clusters are a control plane and as many members less one"):
        karmada.start(cast(Sandbox, Three(tmp_path)), members)


def test_control_plane_that_would_run_workloads_must_be_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"inert=\(0,\)"):
        karmada.start(cast(Sandbox, Three(tmp_path)), ("east", "west"))


def test_webhooks_must_be_asked_where_they_listen() -> None:
    first, second = karmada.hooks(HOOKS, address="127.1.2.3:9443", ca="Q0E=")
    assert first["webhooks"][0]["clientConfig"] == {
        "url": "https://127.1.2.3:9443/mutate-work",
        "caBundle": "Q0E=",
    }
    assert second["kind"] == "ValidatingWebhookConfiguration"


def test_webhook_never_listens_beyond_loopback() -> None:
    addresses = {karmada.loopback() for _ in range(100)}
    assert all(ipaddress.ip_address(each).is_loopback for each in addresses)
    assert len(addresses) > 90


def test_crds_must_be_found_in_folders_below(tmp_path: Path) -> None:
    for name in ("b/two.yaml", "a/one.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"metadata: {{name: {name}}}\n")
    assert [each["metadata"]["name"] for each in karmada.definitions(tmp_path)] == [
        "a/one.yaml",
        "b/two.yaml",
    ]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([], False),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Other", "status": "True"}], False),
    ],
)
def test_member_must_be_ready_only_where_karmada_says_so(
    conditions: list[dict[str, str]], ready: bool
) -> None:
    assert karmada.is_ready({"status": {"conditions": conditions}}) is ready


def test_member_without_a_status_never_is_ready() -> None:
    assert not karmada.is_ready({})
