"""`isthmus sandbox demo`: a control plane, the operator and a ModelServing, told as they come up.

sandbox.py calls `run`; isthmus.sandbox.scene does what happens. What is shown of the ModelServing is what the
operator itself believes, read from its debug port a few times a second. On a terminal that is a tree that
changes, elsewhere a line per change. Whatever happens (an error, Ctrl-C, SIGTERM), the scene is cleaned up,
unless it came to its end with --keep.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click

from isthmus.cli.dumps import DebugClient, NothingListens, Unreadable, visible
from isthmus.cli.tree import cache_tree
from isthmus.errors import UserError
from isthmus.modelserving.dto import CacheDump
from isthmus.sandbox import scene as scenes
from isthmus.sandbox.scene import ClusterScene, SandboxScene, Scene

NAME: Final = "demo"
POLL_S: Final = 0.1
OPERATOR_TIMEOUT_S: Final = 30.0
UP_TIMEOUT_S: Final = 300.0
"""A cluster that exists may have to pull an image first."""
ATTEMPTS: Final = 3


def run(*, keep: bool, kubeconfig: Path | None) -> None:
    """Play the demo. Raises UserError for what the person can change; exits with 1 where it fails
    otherwise."""
    story = Story()
    try:
        scene: Scene = _make_sandbox(story, keep) if kubeconfig is None else ClusterScene(kubeconfig)
        with asyncio.Runner() as runner:
            runner.run(_play(scene, story, keep=keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        story.say("interrupted")
        sys.exit(130)


class Story:
    """What is told, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line of the story."""
        self.show(f"[{self.elapsed_s:5.1f} s] {text}")

    def show(self, *blocks: Any) -> None:
        """Texts and trees, as they are. Once nobody reads any more (`demo | head`) it is silent: that the
        listener has gone is no reason to leave things behind in a cluster."""
        try:
            for block in blocks:
                if isinstance(block, str):
                    click.echo(block)
                else:
                    self._console().print(block)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def _console(self) -> Any:
        from rich.console import Console

        return Console(highlight=False, soft_wrap=True)


async def _play(scene: Scene, story: Story, *, keep: bool) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    finished = False
    try:
        await scene.prepare(story.say)
        debug = await _start_operator(scene, story)
        manifest = scenes.read_manifest()
        name: str = manifest["metadata"]["name"]
        story.say(f"kubectl apply -f {scenes.MANIFEST}")
        await scenes.apply(scene, manifest)
        dump = await _follow(scene, story, debug, f"{scene.namespace}/{name}", manifest["spec"]["replicas"])
        await _conclude(scene, story, debug, dump)
        finished = True
    finally:
        if not (keep and finished):
            # Another interrupt must not leave a person's cluster half cleaned.
            cleaning = loop.create_task(_clean(scene, story))
            while not cleaning.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(cleaning)
            cleaning.result()
    if keep:
        _explain(scene, story, debug)


async def _start_operator(scene: Scene, story: Story) -> DebugClient:
    """The operator's debug port, once it answers with a complete cache.

    The ports are free when they are chosen; should another process take one in between, others are tried.
    """
    for attempt in range(ATTEMPTS):
        debug_port, health_port = free_port(), free_port()
        flags = [
            f"--debug-port={debug_port}",
            f"--health-probe-bind-address=127.0.0.1:{health_port}",
            "--metrics-bind-address=0",
        ]
        story.say(f"isthmus operator {' '.join(flags)}")
        scene.start_operator(flags)
        debug = DebugClient(("127.0.0.1",), debug_port)
        deadline = time.monotonic() + OPERATOR_TIMEOUT_S
        while not scene.operator_failed() and time.monotonic() < deadline:
            try:
                await asyncio.to_thread(debug.cache, None, None)
            except Unreadable:
                await asyncio.sleep(POLL_S)
            else:
                story.say(f"the operator is ready; its debug port is http://127.0.0.1:{debug_port}")
                return debug
        if "in use" not in tail(scene) or attempt == ATTEMPTS - 1:
            break
    raise UserError(f"the operator did not become ready; its log ends:\n{tail(scene)}")


async def _follow(scene: Scene, story: Story, debug: DebugClient, key: str, replicas: int) -> CacheDump:
    """Tell what changes until every group runs; return what the operator's cache holds then."""
    first = 0.0
    known: dict[str, str] = {}
    deadline = time.monotonic() + UP_TIMEOUT_S
    with _view(story) as view:
        while time.monotonic() < deadline:
            try:
                dump = await asyncio.to_thread(debug.cache, scene.namespace, key.partition("/")[2])
            except NothingListens:
                raise UserError(f"the operator has ended; its log ends:\n{tail(scene)}") from None
            except Unreadable:
                await asyncio.sleep(POLL_S)
                continue
            view.show(dump, known)
            groups = dump.get(key, {})
            running = [group for group in groups.values() if group.status == "Running"]
            if running and not first:
                first = story.elapsed_s
            if len(running) == replicas == len(groups):
                break
            await asyncio.sleep(POLL_S)
        else:
            raise UserError(
                f"{key} is not up after {UP_TIMEOUT_S:.0f} s",
                hint="the pods' events say why: kubectl describe pods",
            )
    story.say(f"the first group ran after {first:.1f} s, all {replicas} groups after {story.elapsed_s:.1f} s")
    return dump


class _Lines:
    """Changes as lines."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def show(self, dump: CacheDump, known: dict[str, str]) -> None:
        """A line for each state that is not as in `known`, which is brought up to date."""
        for what, state in _states(dump):
            if known.get(what) != state:
                known[what] = state
                self._story.say(f"{visible(what)}  {state}")


class _Live:
    """The tree itself, redrawn."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def show(self, dump: CacheDump, known: dict[str, str]) -> None:
        """Draw the tree as it is now."""
        self._live.update(cache_tree(dump), refresh=True)


@contextmanager
def _view(story: Story) -> Iterator[_Lines | _Live]:
    if not sys.stdout.isatty():
        yield _Lines(story)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
        yield _Live(live)


def _states(dump: CacheDump) -> Iterator[tuple[str, str]]:
    """What there is and how it is: groups, their roles' instances, their ready pods."""
    for groups in dump.values():
        for group in groups.values():
            yield f"group {group.name}", group.status
            for instances in group.roles.values():
                for instance in instances.values():
                    yield f"  role {group.name}/{instance.name}", instance.status
            for pod in group.running_pods:
                yield f"    pod {pod}", "ready"


async def _conclude(scene: Scene, story: Story, debug: DebugClient, dump: CacheDump) -> None:
    command = f"isthmus debug cache --port {debug.where.rpartition(' ')[2]}"
    story.show("", f"$ {command}", cache_tree(dump), "")
    pods = await scenes.count_pods(scene)
    story.say(f"done: {pods} pods in {story.elapsed_s:.1f} s")


async def _clean(scene: Scene, story: Story) -> None:
    story.say("cleaning up")
    try:
        await scene.clean(story.say)
    except UserError as error:
        click.echo(f"error: {error}\nhint: {error.hint}", err=True)
        return
    story.say("everything is gone again")


def _explain(scene: Scene, story: Story, debug: DebugClient) -> None:
    """What a person can do with a demo that is kept."""
    port = debug.where.rpartition(" ")[2]
    story.show(
        "\nIt goes on running. In another shell:\n\n"
        f"    export KUBECONFIG={scene.kubeconfig}\n"
        "    kubectl get modelservings,pods      # or, with ISTHMUS_SANDBOX=demo: isthmus sandbox kubectl\n"
        f"    isthmus debug cache --port {port} --watch\n"
        f"    isthmus sandbox fault --name {NAME} POD restart\n"
        f"    isthmus sandbox logs --name {NAME} operator -f\n"
        f"    isthmus sandbox down --name {NAME}    # ends it"
    )


def _make_sandbox(story: Story, keep: bool) -> SandboxScene:
    from isthmus.api import crd
    from isthmus.api.modelserving import MODEL_SERVINGS
    from isthmus.cli.sandbox import failing_clearly, progress_view
    from isthmus.sandbox import NodeSettings, Sandbox, build

    with failing_clearly(), progress_view() as progress:
        programs = build.ensure(progress)
        story.say("starting etcd, kube-apiserver, kube-controller-manager and a simulated node")
        sandbox = Sandbox.start(
            NAME if keep else None,
            nodes=2,
            detached=keep,
            ephemeral=not keep,
            crds=crd.definitions(MODEL_SERVINGS.group),
            # Slow enough to be seen, as containers are.
            node=NodeSettings(ready_delay_s=0.5, ready_jitter_s=2.0),
            programs=programs,
        )
    story.say(f"the control plane is ready: {sandbox.cluster().server}")
    return SandboxScene(sandbox)


def tail(scene: Scene) -> str:
    """The end of the operator's log."""
    try:
        return scene.operator_log.read_text(errors="replace")[-2000:].strip()
    except OSError as error:
        return str(error)


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
