"""`isthmus sandbox demo-global`: one address in front of two clusters, of which one is lost and comes back.

sandbox.py calls `run`. Three real control planes, Cilium's controllers between them, an operator in each
workload cluster, discovery service and router in the third (sandbox/globalscene.py). The official openai
client asks all the while; after each step it is told what became of its requests. A request that could have
been served and was not ends the demo with exit code 1. Everything is taken down at the end, whatever happens,
unless the demo came to its end with --keep.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from isthmus.cli.demo import Story
from isthmus.errors import WorldError
from isthmus.sandbox import globalscene
from isthmus.sandbox.globalscene import (
    EAST,
    MODEL,
    NAMES,
    POOL,
    ROUTER,
    SERVING,
    WEST,
    WORKLOADS,
    GlobalScene,
)
from isthmus.sandbox.ledger import Tally, unserved
from isthmus.sandbox.programs import CILIUM
from isthmus.sandbox.traffic import Traffic, check_client

NAME: Final = "demo-global"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKERS: Final = 7
TOKENS: Final = 25
ENOUGH: Final = 40
"""Answers that are waited for in each step."""
POLL_S: Final = 0.1
WAIT_S: Final = 60.0
SHOWN: Final = 5
"""Failures that are shown in full."""


class Unserved(Exception):
    """A request that could have been served was not."""


def run(*, keep: bool) -> None:
    """Play the demo. Raises UserError and WorldError where it cannot be played; exits with 1 where a request
    failed, with 130 where it is interrupted."""
    check_client()
    story = Story()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    scene, finished = None, False
    try:
        scene = _make_scene(story, keep)
        url = _bring_up(scene, story)
        with Traffic(url, model=MODEL, workers=WORKERS, tokens=TOKENS) as traffic:
            _Play(scene, story, traffic).all()
        _conclude(story, traffic)
        finished = True
    except KeyboardInterrupt:
        story.say("interrupted")
        sys.exit(130)
    except Unserved as error:
        story.say(f"FAILED: {error}")
        sys.exit(1)
    finally:
        if scene is not None and not (keep and finished):
            for number in SIGNALS:  # impatience must not leave half of it
                signal.signal(number, signal.SIG_IGN)
            story.say("cleaning up")
            scene.sandbox.stop()
    if keep:
        scene.keep_asking(url)
        _explain(scene, story, url)
    else:
        story.say("everything is gone again")


class _Play:
    """The steps with traffic, in their order."""

    def __init__(self, scene: GlobalScene, story: Story, traffic: Traffic) -> None:
        self._scene = scene
        self._story = story
        self._traffic = traffic
        self._told = Tally()
        self._seen = 0

    def all(self) -> None:
        """Everything."""
        for step in (self._both, self._lost, self._back, self._deleted, self._made_again):
            self._story.show("")
            step()

    def _both(self) -> None:
        self._story.say(
            f"{WORKERS} openai clients ask for {MODEL} without a pause, every second time as a stream"
        )
        self._until("both clusters answer", lambda: self._answered(EAST) and self._answered(WEST))
        self._more(ENOUGH)
        self._tell()

    def _lost(self) -> None:
        self._story.say(
            f"the cluster {WEST} is lost: API server, controllers, frontends and relay are killed"
        )
        began = time.monotonic()
        self._scene.cluster(WEST).take_away()
        gone = time.monotonic()
        self._until("its pool is dropped", lambda: self._scene.listed() == {EAST})
        self._story.say(
            f"{time.monotonic() - began:.1f} s later discovery has dropped {WEST}/{SERVING}/{POOL}"
        )
        self._more(ENOUGH)
        self._tell(lost=WEST)
        if self._traffic.ledger.last_answer(WEST) > gone + 1.0:
            raise WorldError(f"{WEST} answered after it was gone")

    def _back(self) -> None:
        self._story.say(f"the cluster {WEST} comes back")
        began = time.monotonic()
        self._scene.cluster(WEST).bring_back()
        self._until("its pool is listed", lambda: WEST in self._scene.listed())
        self._story.say(f"{time.monotonic() - began:.1f} s later discovery lists its pool again")
        before = self._tally().answered.get(WEST, 0)
        self._until(f"{WEST} answers", lambda: self._tally().answered.get(WEST, 0) > before)
        self._more(ENOUGH)
        self._tell()

    def _deleted(self) -> None:
        self._story.say(f"the pool of {EAST} is deleted: kubectl delete dynamographdeployment {POOL}")
        self._scene.delete_graph(EAST)
        self._until("it has no frontends any more", lambda: self._scene.serving() == {WEST})
        self._more(ENOUGH)
        self._tell()

    def _made_again(self) -> None:
        self._story.say(f"and made again: kubectl apply of the graph in {EAST}")
        self._scene.apply(EAST, globalscene.graph(EAST))
        self._until("it has frontends again", lambda: self._scene.serving() == set(WORKLOADS))
        before = self._tally().answered.get(EAST, 0)
        self._until(f"{EAST} answers", lambda: self._tally().answered.get(EAST, 0) > before)
        self._more(ENOUGH)
        self._tell()

    # What steps are made of

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        self._scene.wait(what, holds, within_s=WAIT_S)

    def _tally(self) -> Tally:
        return self._traffic.ledger.tally()

    def _answered(self, name: str) -> bool:
        return name in self._tally().answered

    def _more(self, count: int) -> None:
        """Let so many more requests end."""
        goal = self._tally().total + count
        self._until("requests end", lambda: self._tally().total >= goal)

    def _tell(self, lost: str = "") -> None:
        """What became of the requests since this was told last; cut answers only of a cluster that is lost.

        Raises Unserved.
        """
        now = self._tally()
        self._story.say(f"requests since then: {now.minus(self._told).describe()}")
        self._told = now
        troubles = list(self._traffic.ledger.troubles)[self._seen :]
        self._seen += len(troubles)
        bad = unserved(troubles, lost=lost)
        if bad:
            details = "".join(
                f"\n    {each.outcome.value}, {each.by or '?'}: {each.detail}" for each in bad[:SHOWN]
            )
            raise Unserved(f"{len(bad)} requests could have been served and were not:{details}")


def _make_scene(story: Story, keep: bool) -> GlobalScene:
    from isthmus.cli.sandbox import progress_view
    from isthmus.sandbox import NodeSettings, Sandbox, build

    with progress_view() as progress:
        programs = build.ensure(progress)
        CILIUM.ensure(progress)
        story.say(f"starting three control planes: {', '.join(NAMES)}")
        sandbox = Sandbox.start(
            NAME if keep else None,
            clusters=len(NAMES),
            detached=keep,
            ephemeral=not keep,
            crds=globalscene.crds(),
            node=NodeSettings(ready_delay_s=0.2),
            programs=programs,
        )
    for name, each in zip(NAMES, sandbox.clusters, strict=True):
        story.say(f"{name} is ready: {each.server}")
    return GlobalScene(sandbox)


def _bring_up(scene: GlobalScene, story: Story) -> str:
    """Return the router's address on this machine once it serves the pools of both clusters."""
    story.say("Cilium's controllers for the Multi-Cluster Services API start in each")
    scene.start_mesh()
    for path in globalscene.MANIFESTS:
        story.say(f"kubectl apply -f {path}  # in {ROUTER}")
    scene.apply_router_cluster()
    discovery, router = scene.local_url("discovery"), scene.local_url("router")
    story.say(f"discovery service: {discovery}/pools  router: {router}  its page: {router}/ui")
    for name in WORKLOADS:
        story.say(f"isthmus operator, and kubectl apply of a graph and its relay  # in {name}")
        scene.start_operator(name)
        scene.apply_pool(name, scene.service_url("discovery"))
    try:
        scene.wait("both pools are listed with frontends", lambda: scene.serving() == set(WORKLOADS))
    except WorldError as error:
        raise WorldError(f"{error}; the discovery service says:{scene.troubles()}") from error
    scene.wait("the router is ready", scene.router_is_ready)
    for each in scene.pools():
        models = ", ".join(model["id"] for model in each["models"])
        where = ", ".join(each["frontend_urls"])
        story.say(f"pool {each['cluster_id']}/{each['namespace']}/{each['name']}: {models} at {where}")
    return router


def _conclude(story: Story, traffic: Traffic) -> None:
    tally = traffic.ledger.tally()
    story.show("")
    story.say(f"all requests: {tally.describe()}")
    if tally.failed:
        raise Unserved(f"{tally.failed} requests failed")
    story.say("done: every request that could be served was")


def _explain(scene: GlobalScene, story: Story, url: str) -> None:
    kubeconfigs = "".join(
        f"    export KUBECONFIG={scene.cluster(name).kubeconfig()}    # {name}\n" for name in NAMES
    )
    story.show(
        "\nIt goes on running. In another shell:\n\n"
        f"    curl {url}/v1/models                 # and {url}/ui in a browser\n"
        f"{kubeconfigs}"
        f"    isthmus sandbox take-away --name {NAME} --cluster {NAMES.index(WEST)}    # and bring-back\n"
        f"    isthmus sandbox logs --name {NAME} traffic -f\n"
        f"    isthmus sandbox logs --name {NAME}    # lists all logs, those of pods too\n"
        f"    isthmus sandbox down --name {NAME}    # ends it"
    )


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
