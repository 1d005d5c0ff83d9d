"""Whether a pool has arrived at a discovery service, and why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.api.pools import InvalidField, Model, Pool, PoolKey, PoolList
from isthmus.poolrelay.plan.arrival import Unmatched, judge, read_unmatched, unreachable

KEY = PoolKey("east", "serving", "chat")
READY = Model(id="m")


def pool(cluster: str = "east", **changes: Any) -> Pool:
    key = PoolKey(cluster, "serving", "chat")
    fields: dict[str, Any] = {"models": (READY,), "frontend_urls": ("http://f",), "expires_in_secs": 12.4}
    return Pool(
        pool_id=key.pool_id,
        cluster_id=key.cluster_id,
        namespace=key.namespace,
        name=key.name,
        **(fields | changes),
    )


def listed(*pools: Pool, complete: bool = True) -> PoolList:
    return PoolList(version="v", complete=complete, mode="mcs", pools=pools)


def why(**changes: str) -> Unmatched:
    fields = {"cluster_id": "east", "namespace": "serving", "name": "chat", "kind": "registration"}
    return Unmatched(**(fields | changes))


def test_pool_that_is_there_must_be_found_with_its_state() -> None:
    found = judge(KEY, listed(pool("west"), pool(), complete=False), ())
    assert (found.arrived, found.findings) == (True, ())
    assert "1 of 1 models ready, 1 frontends, lease 12 s" in found.notes[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"frontend_urls": ()}, "NoFrontendThere"),
        ({"models": ()}, "NoModelThere"),
        ({"models": (Model(id="m", ready=False),)}, "NoModelReady"),
    ],
)
def test_pool_that_cannot_be_asked_must_say_why(changes: dict[str, Any], reason: str) -> None:
    found = judge(KEY, listed(pool(**changes)), ())
    assert (found.arrived, [each.reason for each in found.findings]) == (True, [reason])


@pytest.mark.covers("PW-12")
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("cluster_id_differs", "ClusterIDDiffers"),
        ("no_relay_import", "NoRelayImport"),
        ("relay_not_ready", "RelayNotReady"),
        ("name_too_long", "NameTooLong"),
        ("no_registration", "NoRegistration"),
        ("another", "another"),
        ("", "Unmatched"),
    ],
)
def test_services_own_reason_must_be_told(reason: str, told: str) -> None:
    others = (why(name="other", reason="x"), why(namespace="other", reason="x"))
    found = judge(KEY, listed(), (*others, why(reason=reason, message="because")))
    assert (found.arrived, [each.reason for each in found.findings]) == (False, [told])
    assert found.findings[0].text == "registration of east: because"


def test_reason_of_another_cluster_must_be_told_where_there_is_none_of_this() -> None:
    import_ = why(cluster_id="eats", kind="import", reason="cluster_id_differs", message="x")
    assert [each.reason for each in judge(KEY, listed(), (import_,)).findings] == ["ClusterIDDiffers"]
    both = judge(KEY, listed(), (import_, why(reason="no_relay_import")))
    assert [each.reason for each in both.findings] == ["NoRelayImport"]


@pytest.mark.covers("PW-8")
def test_absence_must_be_believed_only_of_a_complete_list() -> None:
    assert [each.reason for each in judge(KEY, listed(), ()).findings] == ["NotRegistered"]
    young = judge(KEY, listed(complete=False), ())
    assert (young.arrived, [each.reason for each in young.findings]) == (False, ["ListIncomplete"])


def test_pool_of_the_name_from_elsewhere_must_be_mentioned() -> None:
    found = judge(KEY, listed(pool("west")), ())
    assert (found.arrived, found.notes) == (False, ("a pool of this name is there from west",))
    assert not unreachable("x").arrived


def test_report_must_be_read_whatever_its_lists_are_called() -> None:
    row = {"cluster_id": "east", "namespace": "serving", "name": "chat", "reason": "r", "message": "m"}
    body = json.dumps(
        {"registrations": [row | {"kind": "registration", "more": 1}], "imports": [], "complete": True}
    )
    assert read_unmatched(body.encode()) == (why(reason="r", message="m"),)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"a":[1]}', b'{"a":[{"name":1}]}', b"\xff"])
def test_report_that_is_none_must_be_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        read_unmatched(body)
