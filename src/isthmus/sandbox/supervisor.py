"""The process that owns a sandbox: `python -m isthmus.sandbox.supervisor FOLDER LOCK_FD`.

sandbox.py starts it. It starts the servers, brings the clusters up, runs the simulated nodes, answers on the
control socket, and at the end kills what it started and removes the folder. It ends when told to (SIGTERM,
SIGINT, the control socket), when whoever started it does (end of file on stdin, unless it is detached), or
when a server keeps dying. Should it be killed itself, the kernel kills the servers (processes.py) and frees
the lock, and the next start clears the folder. Progress goes to stdout as lines of JSON until it is ready;
logs go to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from isthmus import logs
from isthmus.api.times import format_time
from isthmus.clock import Clock, SystemClock
from isthmus.errors import IsthmusError, UserError, WorldError
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.sandbox import bootstrap, cluster, control, pki, places, podstatus, ports, processes
from isthmus.sandbox.addresses import Addresses
from isthmus.sandbox.component import Component, ComponentFailed
from isthmus.sandbox.fabric import Fabric
from isthmus.sandbox.node import SimulatedNode
from isthmus.sandbox.settings import ADMIN, NODE, USERS, Folder, NodeSettings, Record, Spec, node_names

log = logs.get(__name__)

START_TIMEOUT_S: Final = 120.0
READY_TIMEOUT_S: Final = 90.0
PROBE_TIMEOUT_S: Final = 0.5

Raw = dict[str, Any]


class _Stopped(Exception):
    """Asked to end; what ends everything in the task group."""


class Supervisor:
    """See the module. `run` once, on the main thread."""

    def __init__(self, folder: Folder, spec: Spec, clock: Clock) -> None:
        self._folder = folder
        self._spec = spec
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._stop = asyncio.Event()
        self._phase = "starting"
        self._step = ""
        self._started = clock.now()
        self._servers: tuple[str, ...] = ()
        self._etcd = ""
        self._held: list[socket.socket] = []
        self._components: dict[str, Component] = {}
        self._parts: dict[int, list[str]] = {}
        self._clients: list[Client] = []
        self._nodes: list[SimulatedNode] = []
        self._fabric = Fabric(folder, clock)
        identity = processes.identify(os.getpid(), str(folder.path))
        assert identity is not None
        self._identity = identity

    async def run(self) -> None:
        """Be the sandbox until it has to end. Raises what went wrong, in an ExceptionGroup or bare."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if not self._spec.detached:
            loop.add_reader(sys.stdin.fileno(), self._see_stdin)
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with self._group:
                        self._group.create_task(self._end_when_asked())
                        try:
                            async with asyncio.timeout(START_TIMEOUT_S):
                                await self._bring_up(stack)
                        except TimeoutError:
                            raise WorldError(self._explain_delay()) from None
                        self._phase = "ready"
                        self._report("ready")
                except* _Stopped:
                    pass
        finally:
            self._fabric.close()
            for held in self._held:
                held.close()

    # Coming up

    async def _bring_up(self, stack: contextlib.AsyncExitStack) -> None:
        spec, folder = self._spec, self._folder
        etcd_port, peer_port, *api_ports = (self._reserve() for _ in range(2 + spec.clusters))
        self._etcd = f"http://{ports.LOOPBACK}:{etcd_port}"
        self._servers = tuple(cluster.server_url(port) for port in api_ports)
        etcd = cluster.etcd_argv(spec.programs, folder, port=etcd_port, peer_port=peer_port)
        self._start("etcd", etcd)
        self._report("making keys")
        self._write_credentials()
        for index, port in enumerate(api_ports):
            argv = cluster.apiserver_argv(
                spec.programs, folder, cluster=index, port=port, etcd_port=etcd_port, audit=spec.audit
            )
            self._start(f"apiserver-{index}", argv)
        self._group.create_task(control.serve(folder.path, self._answer))
        self._report("waiting for kube-apiserver")
        addresses = Addresses()
        for index in range(spec.clusters):
            self._clients.append(await stack.enter_async_context(self._client(index, ADMIN)))
            node_client = await stack.enter_async_context(self._client(index, NODE))
            machine, proxy = self._fabric.add(node_client, port=self._reserve())
            self._group.create_task(proxy.run())
            self._nodes.append(
                SimulatedNode(
                    node_client,
                    names=node_names(spec.nodes),
                    addresses=addresses,
                    settings=spec.node,
                    clock=self._clock,
                    machine=machine,
                )
            )
        await asyncio.gather(*(self._bring_up_cluster(index) for index in range(spec.clusters)))

    async def _bring_up_cluster(self, index: int) -> None:
        spec, client = self._spec, self._clients[index]
        await self._wait_ready(index)
        self._report("installing CRDs" if spec.crds else "making nodes")
        now = format_time(self._clock.now())
        nodes = [podstatus.node(name, now) for name in node_names(spec.nodes)]
        await bootstrap.prepare(client, self._clock, nodes=nodes, crds=spec.crds)
        manager = cluster.controller_manager_argv(
            spec.programs, self._folder, cluster=index, inert=index in spec.inert
        )
        self._start(f"controller-manager-{index}", manager)
        self._report("waiting for kube-controller-manager")
        self._group.create_task(self._nodes[index].run())
        await bootstrap.wait_usable(client, self._clock)
        await self._nodes[index].wait_synced()

    def _write_credentials(self) -> None:
        folder = self._folder
        addresses = [ports.LOOPBACK, *(cluster.service_address(i) for i in range(self._spec.clusters))]
        authority = pki.Authority(folder.pki, now=self._clock.now())
        authority.create(addresses)
        users = USERS | self._spec.users
        tokens = {user: secrets.token_urlsafe(24) for user in users}
        folder.write_private(folder.tokens, cluster.tokens_csv(users, tokens))
        folder.write_private(folder.audit_policy, cluster.audit_policy())
        for index, server in enumerate(self._servers):
            for user, token in tokens.items():
                text = cluster.kubeconfig(
                    server=server, ca_pem=authority.certificate_pem, user=user, credentials={"token": token}
                )
                folder.write_private(folder.kubeconfig(index, user), text)

    def _start(self, name: str, argv: list[str]) -> None:
        """Start a server without which there is no sandbox."""
        self._group.create_task(self._make_component(name, argv).keep())

    def _run_guest(self, name: str, argv: list[str], index: int | None) -> None:
        """Start something that lives in the sandbox, such as the demo's operator; it may fail by itself. As a
        part of the cluster `index` it comes and goes with that."""
        if name in self._components:
            raise UserError(f"there is a component {name!r} already")
        if places.NAME.fullmatch(name) is None:
            raise UserError(f"{name!r} cannot be a component's name")

        async def keep(guest: Component) -> None:
            try:
                await guest.keep()
            except ComponentFailed as error:
                log.error("gave up on a guest", component=name, error=str(error))

        self._group.create_task(keep(self._make_component(name, argv)))
        if index is not None:
            self._parts.setdefault(index, []).append(name)
        self._write_record()

    def _make_component(self, name: str, argv: list[str]) -> Component:
        component = Component(
            name,
            argv,
            log_path=self._folder.log(name),
            cwd=self._folder.path,
            env=cluster.environment(os.environ),
            clock=self._clock,
            changed=self._write_record,
        )
        self._components[name] = component
        component.start()
        return component

    def _reserve(self) -> int:
        held = ports.reserve()
        self._held.append(held)
        return ports.port_of(held)

    def _client(self, index: int, user: str, *, timeout_s: float = 30.0) -> Client:
        settings = config.load(self._folder.kubeconfig(index, user), environ={})
        return Client(settings, user_agent=f"isthmus-sandbox/{user}", timeout_s=timeout_s, clock=self._clock)

    async def _wait_ready(self, index: int) -> None:
        async with self._client(index, ADMIN, timeout_s=PROBE_TIMEOUT_S) as probe:
            await bootstrap.wait_ready(probe, self._clock)

    def _explain_delay(self) -> str:
        tails = (
            f"the end of {component.name}'s log:\n{tail}"
            for component in self._components.values()
            if (tail := component.tail())
        )
        return "\n".join((f"not ready after {START_TIMEOUT_S:.0f} s, still {self._step}", *tails))

    # Ending

    async def _end_when_asked(self) -> None:
        await self._stop.wait()
        self._phase = "stopping"
        self._write_record()
        raise _Stopped

    def _see_stdin(self) -> None:
        """Whoever started this process writes nothing, so something to read is the end of the file."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self._stop.set()

    # Saying what is going on

    def _report(self, step: str) -> None:
        if step == self._step:
            return
        self._step = step
        self._write_record()
        _tell({"step": step})
        if step == "ready":
            log.info("ready", seconds=round(self._clock.now() - self._started, 2))

    def _write_record(self) -> None:
        record = Record(
            name=self._spec.name,
            supervisor=self._identity,
            phase=self._phase,
            step=self._step,
            clusters=self._spec.clusters,
            nodes=self._spec.nodes,
            detached=self._spec.detached,
            started=self._started,
            servers=self._servers,
            etcd=self._etcd,
            proxies=self._fabric.proxies,
            components={name: component.record for name, component in self._components.items()},
        )
        self._folder.write_private(self._folder.record, msgspec.json.encode(record))

    # Requests

    async def _answer(self, request: Raw) -> Raw:
        match request["do"]:
            case "component":
                await self._steer(request["name"], request["action"], request.get("grace_s", 0.0))
            case "find":
                found = await self._fabric.find(request["cluster"], request["host"], request["port"])
                return {"port": found}
            case "install-crds":
                await self._install_crds(request["cluster"], request["crds"])
            case "node":
                settings = msgspec.convert(request["settings"], NodeSettings)
                for node in self._nodes:
                    node.settings = settings
            case "power":
                await self._power(request["cluster"], on=request["on"])
            case "reserve":
                return {"port": self._reserve()}
            case "run":
                self._run_guest(request["name"], request["argv"], request.get("cluster"))
            case "shutdown":
                self._stop.set()
            case other:
                raise UserError(f"the sandbox cannot {other!r}")
        return {"done": request["do"]}

    async def _steer(self, name: str, action: str, grace_s: float) -> None:
        component = self._components.get(name)
        if component is None:
            raise UserError(f"no component {name!r}; there are {', '.join(self._components)}")
        match action:
            case "pause":
                component.pause()
            case "resume":
                component.resume()
            case "stop":
                await component.stop(grace_s=grace_s)
            case "start" | "restart":
                if action == "restart":
                    await component.stop(grace_s=grace_s)
                component.start()
                if name.startswith("apiserver-"):
                    async with asyncio.timeout(READY_TIMEOUT_S):
                        await self._wait_ready(int(name.rpartition("-")[2]))
            case _:
                raise UserError(f"no action {action!r}")

    async def _power(self, index: int, *, on: bool) -> None:
        """Take a whole cluster away, processes of its pods and control plane, or bring it back."""
        parts = (f"apiserver-{index}", f"controller-manager-{index}", *self._parts.get(index, ()))
        if not on:
            self._fabric.machines[index].power_off()
            for name in reversed(parts):
                await self._steer(name, "stop", 0.0)
            return
        for name in parts:
            await self._steer(name, "start", 0.0)
        self._fabric.machines[index].power_on()

    async def _install_crds(self, index: int, crds: list[Raw]) -> None:
        async with asyncio.timeout(READY_TIMEOUT_S):
            if await bootstrap.install_crds(self._clients[index], self._clock, crds):
                # Its garbage collector looks for kinds at its start, and else every 30 s.
                await self._steer(f"controller-manager-{index}", "restart", 0.0)


def _tell(message: Raw) -> None:
    """Tell whoever started this process, if it still listens."""
    with contextlib.suppress(OSError, ValueError):
        os.write(1, msgspec.json.encode(message) + b"\n")


def _text_of(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, IsthmusError) else f"{type(error).__name__}: {error}"


def main() -> int:
    """Run the supervisor; the exit code is 1 where it failed."""
    path, lock = Path(sys.argv[1]), int(sys.argv[2])
    # Held until this process ends, however it does; the servers must not inherit it.
    os.set_inheritable(lock, False)
    logs.configure("info", "text")
    folder = Folder(path)
    spec = folder.read_spec()
    failed = False

    async def supervise() -> None:
        await Supervisor(folder, spec, SystemClock()).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(supervise())
    except BaseException as error:
        failed = True
        log.exception("the sandbox failed")
        _tell({"error": _text_of(error)})
    # What failed is kept where a person may want to read its logs.
    if spec.ephemeral or not failed:
        shutil.rmtree(path, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
