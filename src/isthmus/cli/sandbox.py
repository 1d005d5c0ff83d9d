"""`isthmus sandbox`: real control planes on this machine, from the command line.

Called through cli/main.py. Each command asks isthmus.sandbox for one thing and prints what came of it:
results on stdout, progress on stderr. What goes wrong is a UserError, or for a sandbox that fails a text with
the end of the log in question. Nothing here decides anything about control planes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from isthmus.errors import UserError, WorldError

if TYPE_CHECKING:
    from isthmus.sandbox import Sandbox

DEFAULT_NAME: Final = "default"
TAIL_LINES: Final = 50

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Which sandbox; several can run at once."
)
cluster_option = click.option(
    "--cluster", type=int, default=0, show_default=True, help="Which of its clusters, counted from 0."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run real control planes on this machine: etcd, kube-apiserver, kube-controller-manager, and a
    simulated node that makes pods Running and Ready. See docs/sandbox.md."""


@command.command()
@click.argument(
    "program",
    type=click.Choice(["controlplane", "helm", "redis", "cilium", "karmada"]),
    default="controlplane",
)
def build(program: str) -> None:
    """Build the control plane's programs, once per machine, and print where they are; or Helm, for the tests
    of the chart; Cilium's or Karmada's, for those over several clusters; or fetch a Redis server, for those
    of the discovery service, where there is none."""
    from isthmus.sandbox import build as builder
    from isthmus.sandbox import programs, redis

    with progress_view() as progress:
        match program:
            case "redis":
                path = str(redis.ensure().program)
            case "controlplane":
                path = builder.ensure(progress).apiserver[0]
            case _:
                path = str(programs.ALL[program].ensure(progress))
    click.echo(path)


@command.command()
@name_option
@click.option("--clusters", type=int, default=1, show_default=True, help="How many control planes.")
@click.option("--nodes", type=int, default=1, show_default=True, help="How many Nodes each has.")
@click.option(
    "--mcs", type=click.Choice(["cilium", "karmada"]), help="Join the clusters; builds it first, once."
)
@click.option("--audit", is_flag=True, help="Log every request (`logs audit-0`).")
@click.option("--detach", is_flag=True, help="Return when it is ready; `down` ends it.")
@click.option("--crds/--no-crds", default=True, show_default=True, help="Install Isthmus' own CRDs.")
@click.option("--ready-delay", type=float, default=0.0, help="Seconds from binding to Ready.")
@click.option("--ready-jitter", type=float, default=0.0, help="Up to so many seconds more, by chance.")
@click.option("--delete-delay", type=float, default=0.0, help="Seconds that a deleted pod takes to end.")
def up(name: str, detach: bool, crds: bool, mcs: str | None, **options: Any) -> None:
    """Start a sandbox, and keep it until Ctrl-C (with --detach: until `down`)."""
    from isthmus.api import crd
    from isthmus.sandbox import NodeSettings, Sandbox
    from isthmus.sandbox import build as builder
    from isthmus.sandbox.programs import ALL

    delays = {f"{key}_s": options.pop(key) for key in ("ready_delay", "ready_jitter", "delete_delay")}
    if any(seconds < 0 for seconds in delays.values()):
        raise UserError("--ready-delay, --ready-jitter and --delete-delay: must not be negative")
    if mcs and options["clusters"] < 2:
        raise UserError(f"--mcs {mcs} joins clusters: --clusters 2 or more")
    began = time.monotonic()
    with progress_view() as progress, failing_clearly():
        programs = builder.ensure(progress)
        if mcs:
            ALL[mcs].ensure(progress)
        sandbox = Sandbox.start(
            name,
            detached=detach,
            ephemeral=False,
            inert=(0,) if mcs == "karmada" else (),
            crds=crd.definitions() if crds else (),
            node=NodeSettings(**delays),
            programs=programs,
            on_step=progress.show,
            **options,
        )
        if mcs:
            progress.show(f"starting {mcs}")
            _join(sandbox, mcs)
    click.echo(f"up after {time.monotonic() - began:.1f} s", err=True)
    for each in sandbox.clusters:
        click.echo(f"export KUBECONFIG={each.kubeconfig()}")
    if detach:
        click.echo(f"it runs until `isthmus sandbox down{_name_flag(name)}`", err=True)
        return
    click.echo("press Ctrl-C to end it", err=True)
    _stay(sandbox)


@command.command()
@name_option
@cluster_option
@click.option("--user", default="admin", show_default=True, help="As whom: admin, operator, ...")
def kubeconfig(name: str, cluster: int, user: str) -> None:
    """Print the path of a kubeconfig. Any kubectl works with it."""
    from isthmus.sandbox import Sandbox

    click.echo(Sandbox.attach(name).cluster(cluster).kubeconfig(user))


@command.command()
@name_option
@cluster_option
def proxy(name: str, cluster: int) -> None:
    """Print the URL of the proxy through which real pods and Services are reached, as with `curl -x`."""
    from isthmus.sandbox import Sandbox

    click.echo(Sandbox.attach(name).cluster(cluster).proxy)


@command.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> NoReturn:
    """Run the kubectl that is built in; everything after `kubectl` goes to it.

    ISTHMUS_SANDBOX and ISTHMUS_CLUSTER choose another sandbox and cluster than the first of `default`.
    """
    from isthmus.sandbox import Sandbox

    name = os.environ.get("ISTHMUS_SANDBOX", DEFAULT_NAME)
    index = os.environ.get("ISTHMUS_CLUSTER", "0")
    if not index.isdecimal():
        raise UserError(f"ISTHMUS_CLUSTER={index}: must be a number")
    sandbox = Sandbox.attach(name)
    words = sandbox.folder.read_spec().programs.kubectl
    env = {**os.environ, "KUBECONFIG": str(sandbox.cluster(int(index)).kubeconfig())}
    os.execve(words[0], [*words, *arguments], env)


@command.command()
@click.option("--name", default="", help="Only this one; all where it is absent.")
def status(name: str) -> None:
    """Show what runs: servers, their memory and CPU, addresses, files."""
    from isthmus.sandbox import leftovers
    from isthmus.sandbox.report import describe

    records = [record for record in leftovers.running() if not name or record.name == name]
    if not records:
        raise UserError(f"no sandbox named {name!r}" if name else "no sandbox runs")
    for record in records:
        click.echo(describe(record, alive=leftovers.is_running(record)))


@command.command()
@click.argument("component", default="")
@name_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
@click.option("--lines", type=int, default=TAIL_LINES, show_default=True, help="How many of the last lines.")
def logs(component: str, name: str, follow: bool, lines: int) -> None:
    """Show the log of a COMPONENT: supervisor, etcd, apiserver-0, controller-manager-0, audit-0, ...

    Without one, list what there is. Logs of a sandbox that crashed stay until its name is used again.
    """
    from isthmus.sandbox import places
    from isthmus.sandbox.settings import Folder

    folder = Folder(places.state_home() / places.check_name(name))
    path = folder.log(component)
    names = sorted(log.stem for log in folder.logs.glob("*.log"))
    if not component:
        click.echo("\n".join(names) or f"no sandbox named {name!r} has left logs")
        return
    if component not in names:
        raise UserError(f"{name!r} has no log {component!r}; there are {', '.join(names) or 'none'}")
    _show_log(path, lines=lines, follow=follow)


@command.command()
@name_option
def down(name: str) -> None:
    """End a sandbox and remove its folder."""
    from isthmus.sandbox import Sandbox, leftovers

    try:
        sandbox = Sandbox.attach(name)
    except UserError:
        if not leftovers.clear(name):
            raise
        click.echo(f"cleared what was left of {name!r}", err=True)
        return
    sandbox.stop()
    click.echo(f"{name!r} is down", err=True)


@command.command()
@click.argument("target", metavar="POD|node/NAME")
@click.argument("fault", metavar="KIND[:DURATION]")
@name_option
@cluster_option
@click.option("-n", "--namespace", default="default", show_default=True, help="The pod's namespace.")
def fault(target: str, fault: str, name: str, cluster: int, namespace: str) -> None:
    """Make something go wrong with a pod or a Node; `none` takes it back.

    \b
    KIND is one of:
      never-ready, unready, slow, restart, crashloop, fail, evict, node-lost, hang-termination
    Several can be given, separated by commas, and a DURATION like 5s or 1m30s. docs/sandbox.md says
    what each does. On a Node there is node-lost.
    """
    from isthmus.sandbox import Sandbox
    from isthmus.sandbox.inject import inject

    with failing_clearly():
        text = inject(Sandbox.attach(name).cluster(cluster), target, fault, namespace=namespace)
    click.echo(f"{target}: {text or 'no fault'}")


@command.command("take-away")
@name_option
@cluster_option
def take_away(name: str, cluster: int) -> None:
    """Lose a whole cluster: kill its API server, its controller manager and its real pods, all at once."""
    from isthmus.sandbox import Sandbox

    with failing_clearly():
        Sandbox.attach(name).cluster(cluster).take_away()


@command.command("bring-back")
@name_option
@cluster_option
def bring_back(name: str, cluster: int) -> None:
    """Start a cluster that was taken away again; return when its API server is ready."""
    from isthmus.sandbox import Sandbox

    with failing_clearly():
        Sandbox.attach(name).cluster(cluster).bring_back()


@command.command()
@click.option("--keep", is_flag=True, help="Leave it running; `down --name demo` ends it.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Play on the cluster of this file instead, in a namespace of its own, and clean up.",
)
def demo(keep: bool, kubeconfig: Path | None) -> None:
    """Show a ModelServing come up: control plane, operator, groups, roles, pods, the operator's cache."""
    if keep and kubeconfig is not None:
        raise UserError("--keep and --kubeconfig: on a cluster of yours the demo always cleans up")
    from isthmus.cli import demo as story

    with failing_clearly():
        story.run(keep=keep, kubeconfig=kubeconfig)


@command.command("demo-export")
@click.option("--keep", is_flag=True, help="Leave it running; `down --name demo-export` ends it.")
def demo_export(keep: bool) -> None:
    """Show a pool's Services exported to other clusters, kept right and withdrawn, step by step."""
    from isthmus.cli import exportdemo

    with failing_clearly():
        exportdemo.run(keep=keep)


@command.command("demo-global")
@click.option("--keep", is_flag=True, help="Leave it running; `down --name demo-global` ends it.")
def demo_global(keep: bool) -> None:
    """Show one address in front of two clusters, while one is lost and comes back."""
    from isthmus.cli import globaldemo

    with failing_clearly():
        globaldemo.run(keep=keep)


class _Lines:
    """Progress as plain lines: what happened, and now and then how far it is."""

    EVERY_S: Final = 10.0

    def __init__(self) -> None:
        self._shown = 0.0

    def say(self, text: str) -> None:
        """See compiler.Progress."""
        click.echo(text, err=True)

    def show(self, text: str) -> None:
        """See compiler.Progress. Between two lines of numbers pass ten seconds."""
        now = time.monotonic()
        if not text[:1].isdigit() or now - self._shown >= self.EVERY_S:
            self._shown = now
            click.echo(text, err=True)


class _Live:
    """Progress as one line that changes, on a terminal."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def say(self, text: str) -> None:
        """See compiler.Progress."""
        self._status.console.print(text, highlight=False)

    def show(self, text: str) -> None:
        """See compiler.Progress."""
        self._status.update(text)


@contextmanager
def progress_view() -> Iterator[_Lines | _Live]:
    """Where progress is shown: a line that changes on a terminal, lines elsewhere; on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield _Live(status)


@contextmanager
def failing_clearly() -> Iterator[None]:
    """A sandbox or cluster that fails is told to a person, as the user's own errors are."""
    try:
        yield
    except WorldError as error:
        raise UserError(str(error)) from error


def _join(sandbox: Sandbox, mcs: str) -> None:
    """Start an implementation of the Multi-Cluster Services API, for which clusters are cluster-0 and so
    on; the first is Karmada's control plane."""
    from isthmus.sandbox import cilium, karmada

    names = [f"cluster-{each.index}" for each in sandbox.clusters]
    try:
        if mcs == "cilium":
            cilium.start(sandbox, names)
        else:
            karmada.start(sandbox, names[1:])
    except BaseException:
        sandbox.stop()
        raise


def _stay(sandbox: Sandbox) -> None:
    """Wait for Ctrl-C or the sandbox's own end."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    # Whoever ends this process in the usual ways wants the sandbox gone, and waits for that.
    # (A shell that starts it in the background has it ignore SIGINT, unless it says otherwise.)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        code = sandbox.wait()
    except KeyboardInterrupt:
        sandbox.stop()
        click.echo(f"\n{sandbox.name!r} is down", err=True)
        return
    if code != 0:
        log = sandbox.folder.log("supervisor")
        raise UserError(f"the sandbox ended by itself (exit code {code})", hint=f"its log: {log}")


def _show_log(path: Path, *, lines: int, follow: bool) -> None:
    with path.open(errors="replace") as log:
        tail = log.readlines()[-lines:] if lines > 0 else []
        click.echo("".join(tail), nl=False)
        if not lines:
            log.seek(0, os.SEEK_END)
        while follow:
            text = log.read()
            if text:
                click.echo(text, nl=False)
            elif not path.exists():
                return
            else:
                time.sleep(0.2)


def _name_flag(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"
