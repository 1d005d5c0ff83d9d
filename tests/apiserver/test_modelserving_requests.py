"""What the operator asks of the API server when nothing is wrong: no more than is needed, never in vain."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.sandbox import Cluster
from tests.support.audit import WRITES, Row, requests_in
from tests.support.eventually import eventually
from tests.support.world import World, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

QUIET_S = 3.0


def rows_of(world: World, cluster: Cluster, user: tuple[str, Path]) -> list[Row]:
    return requests_in(cluster, user[0], world.namespace)


async def told(world: World, count: int) -> None:
    """Return once so many role replicas were said to run, after which no more events are on their way."""

    async def check() -> None:
        notes = [event["note"] for event in world.events(reason="RoleRunning")]
        replicas = {each for note in notes for each in re.findall(r"(\S+) in ServingGroup ([\w-]+)", note)}
        assert len(replicas) == count, notes

    await eventually(check)


@pytest.mark.covers("MS-434", "MS-33")
async def test_run_without_faults_must_make_each_write_once_and_none_in_vain(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 3, team("p", 2, 1), team("d", 1, 0)))
    await world.settled()
    await told(world, 9)
    world.scale(4)
    await world.settled()
    world.set_image("engine:2")
    await world.settled()
    world.scale(1)
    await world.settled()
    world.scale(0)
    await world.settled()
    rows = rows_of(world, cluster, operator_user)
    assert [row for row in rows if row.code >= 400] == []
    made = Counter((row.verb, row.resource) for row in rows if row.verb in WRITES)
    assert made["create", "pods"] == 2 * 4 * 5
    assert made["delete", "pods"] == 2 * 4 * 5
    assert made["create", "services"] == made["delete", "services"] == 4 * 2  # kept across the rollout
    assert made["create", "controllerrevisions"] == 2
    assert made["delete", "controllerrevisions"] == 1
    others = {"events", "modelservings/status"}
    assert {resource for _, resource in made} - others == {"pods", "services", "controllerrevisions"}
    assert {row.verb for row in rows} <= WRITES  # all that is read is read by watching


@pytest.mark.covers("MS-434", "MS-48")
async def test_steady_state_must_make_no_request_and_leave_the_status_alone(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 2))
    await world.settled()
    await told(world, 2)
    before, status = rows_of(world, cluster, operator_user), world.status()
    # What changes nothing that matters is looked at, and answered with nothing.
    world.merge(MODEL_SERVINGS, "a", {"metadata": {"annotations": {"note": "x"}}})
    for pod in world.uids():
        world.annotate(pod, note="x")
    await asyncio.sleep(QUIET_S)  # nothing must happen, for as long as a test can wait for that
    assert rows_of(world, cluster, operator_user) == before
    assert world.status() == status


@pytest.mark.covers("MS-100", "MS-434")
async def test_status_must_be_written_few_times_while_many_groups_come_up(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 40))
    await world.settled()
    rows = [r for r in rows_of(world, cluster, operator_user) if r.resource == "modelservings/status"]
    # Once when they are being made, once when all are there, and at most once a second between.
    assert len(rows) <= 3 + rows[-1].at - rows[0].at
