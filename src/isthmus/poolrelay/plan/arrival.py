"""Whether a pool has arrived at a discovery service, and if not why: what the service says, told to a person.

app/poolcheck.py asks the service and calls `judge`; check.py's Check carries the outcome. The service's own
reasons (PW-12) are passed on, under names as those of conditions have. While its list is incomplete a pool's
absence proves nothing (PW-8), and that is said instead. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from isthmus.api.pools import InvalidField, Pool, PoolKey, PoolList
from isthmus.poolrelay.plan.check import Finding

UNREACHABLE: Final = "DiscoveryUnreachable"
_REASONS: Final = {
    "cluster_id_differs": "ClusterIDDiffers",
    "no_relay_import": "NoRelayImport",
    "relay_not_ready": "RelayNotReady",
    "name_too_long": "NameTooLong",
    "no_registration": "NoRegistration",
    "no_endpoints": "NoEndpoints",
    "no_port": "NoPort",
    "import_withdrawn": "ImportWithdrawn",
}


class Unmatched(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A registration without an import, or an import without a registration, as the service says it."""

    cluster_id: str = ""
    namespace: str = ""
    name: str = ""
    kind: str = ""
    reason: str = ""
    message: str = ""


class Arrival(NamedTuple):
    """The outcome. The pool can be asked from elsewhere where `arrived` holds and `findings` is empty."""

    arrived: bool
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def read_unmatched(body: bytes) -> tuple[Unmatched, ...]:
    """The service's report: an object with lists of what does not match. Raises InvalidField."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
        rows = [row for rows in found.values() if isinstance(rows, list) for row in rows]
        return tuple(msgspec.convert(row, Unmatched) for row in rows)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise InvalidField("", f"is no report of what does not match: {problem}") from None


def judge(key: PoolKey, listed: PoolList, unmatched: Iterable[Unmatched]) -> Arrival:
    """Whether the pool `key` is there, and can be asked."""
    pool = next((each for each in listed.pools if each.key == key), None)
    if pool is not None:
        return _there(pool)
    why = [each for each in unmatched if (each.namespace, each.name) == (key.namespace, key.name)]
    own = [each for each in why if each.cluster_id == key.cluster_id] or why
    findings = tuple(
        Finding(_REASONS.get(each.reason, each.reason or "Unmatched"), _text(each)) for each in own
    )
    others = sorted(
        each.cluster_id for each in listed.pools if (each.namespace, each.name) == (key.namespace, key.name)
    )
    notes = (f"a pool of this name is there from {', '.join(others[:5])}",) if others else ()
    if findings:
        return Arrival(False, findings, notes)
    if not listed.complete:
        text = (
            "the discovery service has not been up for a whole lease: the pool may not have registered again"
        )
        return Arrival(False, (Finding("ListIncomplete", text),), notes)
    text = (
        f"the discovery service has no registration of {key}: its relay has sent none, or its lease has ended"
    )
    return Arrival(False, (Finding("NotRegistered", text),), notes)


def unreachable(problem: str) -> Arrival:
    """The service could not be asked."""
    return Arrival(False, (Finding(UNREACHABLE, f"the discovery service cannot be asked: {problem}"),))


def _there(pool: Pool) -> Arrival:
    ready = [model.id for model in pool.models if model.ready]
    findings = []
    if not pool.frontend_urls:
        findings.append(Finding("NoFrontendThere", "no frontend of the pool can be reached from there"))
    if not pool.models:
        findings.append(Finding("NoModelThere", "the pool serves no model, or no frontend lists one"))
    elif not ready:
        findings.append(Finding("NoModelReady", "no model of the pool is ready"))
    note = (
        f"listed at the discovery service: {len(ready)} of {len(pool.models)} models ready, "
        f"{len(pool.frontend_urls)} frontends, lease {pool.expires_in_secs:.0f} s"
    )
    return Arrival(True, tuple(findings), (note,))


def _text(each: Unmatched) -> str:
    what = f"{each.kind} of {each.cluster_id}" if each.kind else each.cluster_id
    return f"{what}: {each.message}" if each.message else what
