"""Two operators of one cluster: one of all namespaces, one of a single one, which comes, goes and crashes
(R33)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.coordination import LEASES
from isthmus.runtime.claims import NAME
from isthmus.sandbox import Cluster
from tests.support.controlplane import delete_namespace, make_namespace, make_user
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import World, serving

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

CONFIGURATION = """
apiVersion: operator.config.dynamo.nvidia.com/v1alpha1
kind: OperatorConfiguration
namespace:
  scope:
    leaseDuration: 4s
    leaseRenewInterval: 1s
"""


@pytest.fixture
def worlds(cluster: Cluster, serving_api: RawApi) -> Iterator[tuple[World, World]]:
    """The namespace that the restricted operator is for, and another."""
    names = [make_namespace(cluster, prefix) for prefix in ("team-a", "team-b")]
    yield World(serving_api, names[0]), World(serving_api, names[1])
    for name in names:
        delete_namespace(cluster, name)


async def writes(cluster: Cluster, user: str, namespace: str) -> list[str]:
    """What a user wrote in a namespace, claims aside."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in await asyncio.to_thread(lambda: list(cluster.audit_events(user)))
        if event["verb"] not in ("get", "list", "watch")
        and f"/namespaces/{namespace}/" in event["requestURI"]
        and not event["requestURI"].partition("?")[0].endswith((f"/leases/{NAME}", "/leases"))
    ]


async def holder(world: World) -> str:
    answer = await asyncio.to_thread(world.api.get, LEASES, world.namespace, NAME)
    found: str = answer.body.get("spec", {}).get("holderIdentity", "") if answer.code == 200 else ""
    return found


@pytest.mark.covers("R33", "PR-101", "GD-54")
async def test_each_namespace_must_have_one_operator_and_get_the_other_when_that_goes(
    operator: OperatorProcess,
    operator_user: tuple[str, Path],
    cluster: Cluster,
    worlds: tuple[World, World],
    tmp_path: Path,
) -> None:
    team_a, team_b = worlds
    configuration = tmp_path / "configuration.yaml"
    configuration.write_text(CONFIGURATION)
    user, kubeconfig = await asyncio.to_thread(make_user, cluster, prefix="restricted")
    wide = operator_user[0]

    def restricted() -> OperatorProcess:
        flags = (f"--config={configuration}", f"--namespace={team_a.namespace}")
        return OperatorProcess(kubeconfig, tmp_path / "log", *flags)

    async def claimed() -> None:
        assert await holder(team_a)

    async def by(who: str, world: World, do: Callable[[], Any]) -> None:
        """Only `who` writes in `world` from the change until all is as wanted."""
        before = {each: len(await writes(cluster, each, world.namespace)) for each in (wide, user)}
        do()
        await world.settled()
        after = {each: len(await writes(cluster, each, world.namespace)) for each in (wide, user)}
        assert {each for each in after if after[each] > before[each]} == {who}

    with restricted() as process:
        await process.ready()
        await eventually(claimed)
        for world, who in ((team_a, user), (team_b, wide)):
            await by(who, world, lambda world=world: world.create(serving("a", 1)))  # type: ignore[misc]
        await by(user, team_a, lambda: team_a.scale(2))
        assert await process.stop() == 0
    assert await holder(team_a) == ""
    await by(wide, team_a, lambda: team_a.scale(3))

    with restricted() as process:
        await process.ready()
        await eventually(claimed)
        await by(user, team_a, lambda: team_a.scale(2))
        process.kill()
        assert await holder(team_a)
        await by(wide, team_a, lambda: team_a.scale(3))
    assert not await writes(cluster, user, team_b.namespace)
