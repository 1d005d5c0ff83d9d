"""Plays a script against the real API server with two operators, and judges: `make chaos SECONDS=600 SEED=7`.

Rounds of STEPS steps, each with a seed of its own (SEED, SEED+1, ...) and a namespace of its own, until the
time is over. After each round every fault is taken back, and the cluster must come to exactly what the
ModelServings ask for. What broke is printed with the seed, the steps of the round and the end of the history
of the object; `--seed N --steps K` plays a shorter one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from isthmus import logs
from isthmus.api import crd, labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.watch import Reflector
from isthmus.modelserving.store import Caches
from isthmus.runtime.cache import AnyCache, Cache
from isthmus.runtime.metrics import Metrics
from isthmus.sandbox import NodeSettings, Sandbox
from isthmus.sandbox.faults import ANNOTATION as FAULTS
from tests.chaos.judge import Judge
from tests.chaos.script import Kind, Step, script
from tests.support.controlplane import make_namespace
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import PREFIX, World, label

STEPS: Final = 25
CONVERGE_S: Final = 90.0
ELECTION: Final = (
    "--leader-elect",
    "--leader-elect-namespace=default",
    "--leader-elect-lease-duration=4",
    "--leader-elect-renew-deadline=3",
    "--leader-elect-retry-period=0.5",
)


class Broken(AssertionError):
    """An invariant that did not hold; the text is the report."""


class Round:
    """One namespace and what happens in it."""

    def __init__(self, sandbox: Sandbox, folder: Path, world: World, judge: Judge) -> None:
        self.world = world
        self.judge = judge
        self.done: list[Step] = []
        self.manifests: dict[str, Raw] = {}
        self._sandbox = sandbox
        kubeconfig = sandbox.cluster().kubeconfig("operator")
        self.operators = [
            OperatorProcess(
                kubeconfig, folder / f"operator-{n}.log", *ELECTION, f"--namespace={world.namespace}"
            )
            for n in (0, 1)
        ]

    async def play(self, steps: Sequence[Step]) -> None:
        """Carry the steps out; stops at the first that shows a fault."""
        for step in steps:
            self.done.append(step)
            self.judge.did(step.name if step.kind not in _ON_ALL else "", str(step))
            await self._do(step)
            await asyncio.sleep(step.pause_s)
            self.check()

    async def _do(self, step: Step) -> None:
        if step.kind is Kind.CREATE:
            if step.name not in self.manifests:
                self.manifests[step.name] = step.value
                await asyncio.to_thread(self.world.create, step.value)
            return
        if step.kind in _ON_ALL:
            await self._to_servers(step)
        elif step.name in self.manifests:
            await asyncio.to_thread(self._to_serving, step)

    async def _to_servers(self, step: Step) -> None:
        match step.kind:
            case Kind.KILL_LEADER | Kind.STOP_LEADER:
                operator = self.operators[self._leader()]
                if step.kind is Kind.KILL_LEADER:
                    operator.kill()
                else:
                    await operator.stop()
                operator.__enter__()
            case Kind.KILL_ALL:
                for operator in self.operators:
                    operator.kill()
                for operator in self.operators:
                    operator.__enter__()
            case Kind.RESTART_APISERVER:
                await asyncio.to_thread(self._sandbox.restart_apiserver)
                self.world.api.close()
            case Kind.CALM_RESTART:
                await self.converge()
                before = self._uids()
                for operator in self.operators:
                    operator.kill()
                    operator.__enter__()
                for operator in self.operators:
                    await operator.ready()
                await asyncio.sleep(6)
                await self.converge()
                if self._uids() != before:
                    raise Broken("a restart in a calm replaced pods")

    def _leader(self) -> int:
        """Whichever holds the lease; the first where that cannot be told."""
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/isthmus-operator"
        with contextlib.suppress(Exception):
            holder = self._sandbox.cluster().request(path)["spec"]["holderIdentity"]
            return next(n for n, each in enumerate(self.operators) if str(each.pid) in holder)
        return 0

    def _to_serving(self, step: Step) -> None:
        world, name = self.world, step.name
        pods = sorted(pod for pod in world.pods(name) if pod not in self.judge.foreign)
        chosen = pods[step.pick % len(pods)] if pods else ""
        match step.kind:
            case Kind.DELETE:
                del self.manifests[name]
                world.delete(MODEL_SERVINGS, name, propagation=("Background", "Foreground")[step.pick % 2])
                asyncio.run(eventually(lambda: self._is_gone(name), within_s=CONVERGE_S))
            case Kind.IMAGE:
                world.set_image(step.value, name)
            case Kind.SCALE:
                world.scale(step.value, name)
            case Kind.SCALE_ROLE:
                world.scale_role(step.value, name)
            case Kind.STRATEGY:
                world.edit(lambda spec: _set_strategy(spec, step.value), name)
            case Kind.HEAL:
                self._heal(name)
            case Kind.DELETE_SERVICE:
                services = sorted(world.services(name))
                if services:
                    self._on(SERVING_SERVICES, services[step.pick % len(services)])
            case Kind.DELETE_POD | Kind.FORCE_DELETE_POD | Kind.FAULT if chosen:
                self.judge.ours.add(world.pods(name).get(chosen, {}).get("metadata", {}).get("uid", ""))
                with contextlib.suppress(AssertionError):  # it may be gone by now
                    if step.kind is Kind.FAULT:
                        world.fault(chosen, step.value)
                    else:
                        world.delete(
                            SERVING_PODS, chosen, grace_s=0 if step.kind is Kind.FORCE_DELETE_POD else None
                        )

    def _on(self, resource: object, name: str) -> None:
        with contextlib.suppress(AssertionError):
            self.world.delete(resource, name)  # type: ignore[arg-type]

    async def _is_gone(self, name: str) -> None:
        found = self.world.api.get(MODEL_SERVINGS, self.world.namespace, name)
        assert found.code == 404, f"{name} is still there"
        mine = [pod for pod in self.world.pods(name) if pod not in self.judge.foreign]
        assert not mine, mine
        assert not self.world.services(name)

    def _heal(self, name: str) -> None:
        """Take faults back; under policy None, remove failed pods as a person would."""
        none = self.manifests[name]["spec"]["recoveryPolicy"] == "None"
        for pod, found in self.world.pods(name).items():
            with contextlib.suppress(AssertionError):  # it may be gone by now
                if FAULTS in found["metadata"].get("annotations", {}):
                    self.world.fault(pod, "none")
                if none and found["status"].get("phase") == "Failed":
                    self.judge.ours.add(found["metadata"]["uid"])
                    self.world.delete(SERVING_PODS, pod)

    def _uids(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.manifests:
            found |= self.world.uids(name)
        return found

    async def converge(self) -> None:
        """Take faults back and wait until there is exactly what is asked for."""

        async def whole() -> None:
            for name in self.manifests:
                await asyncio.to_thread(self._heal, name)
                found = await asyncio.to_thread(self.world.serving, name)
                await asyncio.to_thread(self._assert_whole, found)
            await asyncio.to_thread(self._assert_no_more)

        try:
            await eventually(whole, within_s=CONVERGE_S, every_s=0.5)
        except AssertionError as error:
            names = "\n".join(self.judge.history(name) for name in self.manifests)
            raise Broken(f"not as asked for after {CONVERGE_S} s: {error}\n{names}") from None
        self.check()

    def _assert_whole(self, found: Raw) -> None:
        self.world.assert_whole(found)
        assert len(self.world.revisions(found["metadata"]["name"])) == 1

    def _assert_no_more(self) -> None:
        for resource in (SERVING_PODS, SERVING_SERVICES, CONTROLLER_REVISIONS):
            for name, found in self.world.find(resource, f"{PREFIX}name").items():
                known = label(found, "name") in self.manifests or name in self.judge.foreign
                assert known, f"{resource.plural} {name} is an orphan"

    def check(self) -> None:
        """Raise the first fault that was seen, if any was."""
        self.judge.settle()
        if self.judge.faults:
            raise Broken(self.judge.faults[0])


_ON_ALL: Final = frozenset(
    {Kind.KILL_LEADER, Kind.KILL_ALL, Kind.STOP_LEADER, Kind.RESTART_APISERVER, Kind.CALM_RESTART}
)


def _set_strategy(spec: Raw, value: Raw) -> None:
    if spec.get("rolloutStrategy", {}).get("type") != "RoleRollingUpdate":
        spec["rolloutStrategy"] = value


@asynccontextmanager
async def _watched(kubeconfig: Path, namespace: str) -> AsyncIterator[Judge]:
    metrics = Metrics()
    caches = Caches(
        servings=Cache(MODEL_SERVINGS, metrics=metrics),
        pods=Cache(SERVING_PODS, metrics=metrics),
        services=Cache(SERVING_SERVICES, metrics=metrics),
        revisions=Cache(CONTROLLER_REVISIONS, metrics=metrics),
        pod_groups=Cache(POD_GROUPS, metrics=metrics),
    )
    judge = Judge(caches)
    kinds: tuple[AnyCache, ...] = (caches.servings, caches.pods, caches.services, caches.revisions)
    selectors = {MODEL_SERVINGS.name: "", CONTROLLER_REVISIONS.name: labels.NAME}
    async with (
        Client(config.load(kubeconfig, environ={}), user_agent="isthmus-chaos") as client,
        asyncio.TaskGroup() as tasks,
    ):
        running = []
        for cache in kinds:
            selector = selectors.get(cache.resource.name, labels.GROUP_NAME)
            reflector: Reflector[Any] = Reflector(
                client, cache.resource, sink=cache, namespace=namespace, label_selector=selector
            )
            running.append(tasks.create_task(reflector.run()))
        try:
            for cache in kinds:
                await cache.wait_complete()
            yield judge
        finally:
            for task in running:
                task.cancel()


def _foreign_pod(world: World) -> tuple[str, str]:
    """A pod of somebody else with the labels of a group, but no name of it."""
    body = {
        "metadata": {
            "name": "stranger",
            "namespace": world.namespace,
            "labels": {
                labels.NAME: "stranger",
                labels.GROUP_NAME: "a-0",
                labels.ROLE: "p",
                labels.ROLE_ID: "p-0",
            },
        },
        "spec": {"containers": [{"name": "x", "image": "registry.example/x"}]},
    }
    answer = world.api.create(SERVING_PODS, {"apiVersion": "v1", "kind": "Pod", **body})
    assert answer.code == 201, answer.body
    return "stranger", answer.body["metadata"]["uid"]


async def play(sandbox: Sandbox, seed: int, steps: Sequence[Step]) -> tuple[Counter[str], int]:
    """One round; returns how often each kind of step happened, and the versions seen. Raises Broken with a
    report."""
    namespace = await asyncio.to_thread(make_namespace, sandbox.cluster(), "chaos")
    api = RawApi(sandbox.cluster().kubeconfig())
    failure: Broken | None = None
    with tempfile.TemporaryDirectory() as folder:
        async with _watched(sandbox.cluster().kubeconfig(), namespace) as judge:
            world = World(api, namespace)
            name, uid = _foreign_pod(world)
            judge.foreign[name] = uid
            game = Round(sandbox, Path(folder), world, judge)
            try:
                for operator in game.operators:
                    operator.__enter__()
                for operator in game.operators:
                    await operator.ready()
                await game.play(steps)
                await game.converge()
            except Exception as error:
                done = "\n".join(f"  {step}" for step in game.done)
                text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
                failure = Broken(f"seed {seed}, after {len(game.done)} steps:\n{done}\n{text}")
                failure.__cause__ = error
            finally:
                for operator in game.operators:
                    operator.kill()
                api.close()
            await asyncio.to_thread(
                sandbox.cluster().request, f"/api/v1/namespaces/{namespace}", method="DELETE"
            )
    if failure is not None:
        raise failure
    return Counter(str(step.kind) for step in game.done), judge.versions


async def chaos(seed: int, seconds: float, steps: int) -> int:
    """Rounds until the time is over; the exit code."""
    began, total, versions, rounds = time.monotonic(), Counter[str](), 0, 0
    node = NodeSettings(ready_delay_s=0.1, ready_jitter_s=0.4, delete_delay_s=0.2)
    with await asyncio.to_thread(
        lambda: Sandbox.start(crds=crd.definitions(), nodes=2, node=node)
    ) as sandbox:
        while rounds == 0 or time.monotonic() - began < seconds:
            try:
                counted, seen = await play(sandbox, seed + rounds, script(seed + rounds, steps))
            except Broken as broken:
                print(f"broken: {broken}")  # noqa: T201
                return 1
            total += counted
            versions += seen
            rounds += 1
            print(f"seed {seed + rounds - 1}: as asked for, {seen} versions seen", flush=True)  # noqa: T201
    took = time.monotonic() - began
    print(f"{rounds} rounds in {took:.0f} s, {versions} versions, steps: {dict(total)}")  # noqa: T201
    return 0


def main() -> int:
    """Parse the arguments and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    logs.configure("error", "text")
    return asyncio.run(chaos(arguments.seed, arguments.seconds, arguments.steps))


if __name__ == "__main__":
    raise SystemExit(main())
