"""A sandbox as seen from outside: start one, find one that runs, steer it, end it.

`isthmus sandbox` and the tests use it; everything in it blocks (from a coroutine: `asyncio.to_thread`). The
work is done by a supervisor process per sandbox, so none of this depends on the caller's event loop. A
sandbox that is not detached ends with the process that started it, however that ends: its supervisor sees
the end of a pipe. Each start also clears away what crashed ones left.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from isthmus.clock import SystemClock
from isthmus.errors import UserError, WorldError
from isthmus.sandbox import build, cluster, control, leftovers, pki, places, processes, rbac, wire
from isthmus.sandbox.settings import ADMIN, Folder, NodeSettings, Programs, Record, Spec, check_counts

STOP_TIMEOUT_S: Final = 15.0
STEER_TIMEOUT_S: Final = 120.0

Raw = dict[str, Any]


class SandboxFailed(WorldError):
    """A sandbox that did not come up. The text says what was in the way, with the end of a log."""


class Cluster:
    """One control plane of a sandbox."""

    def __init__(self, sandbox: Sandbox, index: int, server: str) -> None:
        self.index = index
        self.server = server
        self.sandbox = sandbox
        self._folder = sandbox.folder

    @property
    def ca(self) -> str:
        """The certificate of its authority, as PEM."""
        return (self._folder.pki / "ca.crt").read_text()

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig of one of its users. Raises UserError for a user that there is not."""
        path = self._folder.kubeconfig(self.index, user)
        if not path.exists():
            users = sorted(each.stem for each in path.parent.glob("*.kubeconfig"))
            raise UserError(f"no user {user!r} in cluster {self.index}; there are {', '.join(users)}")
        return path

    def token(self, user: str = ADMIN) -> str:
        """The bearer token of a user that the sandbox was started with. Raises KeyError for others."""
        return self._folder.read_tokens()[user]

    def add_user(self, user: str, *, groups: Sequence[str] = (), role: str = "") -> Path:
        """Let another user in, by client certificate, and return their kubeconfig.

        `role`: a ClusterRole that they are bound to, such as `cluster-admin` or rbac.ROLE.
        """
        authority = pki.Authority(self._folder.pki, now=SystemClock().now())
        certificate, key = authority.issue_client(user, groups)
        text = cluster.kubeconfig(
            server=self.server,
            ca_pem=authority.certificate_pem,
            user=user,
            credentials={
                "client-certificate-data": cluster.encode(certificate),
                "client-key-data": cluster.encode(key),
            },
        )
        path = self._folder.kubeconfig(self.index, user)
        self._folder.write_private(path, text)
        if role:
            bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
            self.request(bindings, method="POST", body=rbac.binding(user, role))
        return path

    @property
    def proxy(self) -> str:
        """The proxy through which its real pods, and the Services of all clusters, are reached over HTTP."""
        return self.sandbox.record.proxies[self.index]

    def local_port(self, host: str, port: int) -> int:
        """The port of 127.0.0.1 to which the proxy would lead a connection now; a pod keeps its own for as
        long as it is there. Raises ControlFailed where that leads nowhere."""
        found: int = self.sandbox.call("find", cluster=self.index, host=host, port=port)["port"]
        return found

    def take_away(self) -> None:
        """Kill its API server, its controller manager and the processes of its pods, all at once."""
        self.sandbox.call("power", cluster=self.index, on=False)

    def bring_back(self) -> None:
        """Start them again. On return the API server is ready; pods follow."""
        self.sandbox.call("power", cluster=self.index, on=True)

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        body: Raw | list[Any] | None = None,
        content_type: str = "application/json",
        user: str = ADMIN,
    ) -> Any:
        """Ask the API server as `user`, and return the decoded answer. Raises as wire.request does."""
        return wire.request(
            self.server,
            path,
            method=method,
            ca_pem=self.ca,
            headers={"Authorization": f"Bearer {self.token(user)}", "Content-Type": content_type},
            body=None if body is None else msgspec.json.encode(body),
        )

    def install_crds(self, crds: Sequence[Raw]) -> None:
        """Create or update CRDs; on return they are Established, listed, and known to the garbage collector.

        Raises ControlFailed with the API server's text for one that it refuses.
        """
        self.sandbox.call("install-crds", cluster=self.index, crds=list(crds))

    def audit_events(self, user: str = "") -> list[Raw]:
        """The audited requests so far, oldest first, of one user or of all. Needs `audit`."""
        try:
            lines = self._folder.audit_log(self.index).read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        # The last piece is empty, or an event that is being written at this moment.
        events: list[Raw] = [msgspec.json.decode(line) for line in lines[:-1]]
        # Who was not let in at all has no name.
        return [event for event in events if not user or event["user"].get("username") == user]


class Sandbox:
    """See the module. A context manager: leaving it stops the sandbox."""

    def __init__(self, folder: Folder, process: subprocess.Popen[bytes] | None = None) -> None:
        record = folder.try_read_record()
        if record is None:
            raise SandboxFailed(f"{folder.path} holds no running sandbox")
        self.folder = folder
        self.name = record.name
        self.clusters = tuple(Cluster(self, i, server) for i, server in enumerate(record.servers))
        self._process = process

    @classmethod
    def start(  # noqa: PLR0913 - what there is to ask for
        cls,
        name: str | None = None,
        *,
        clusters: int = 1,
        nodes: int = 1,
        inert: Sequence[int] = (),
        audit: bool = False,
        detached: bool = False,
        ephemeral: bool = True,
        users: Mapping[str, Sequence[str]] | None = None,
        crds: Sequence[Raw] = (),
        node: NodeSettings | None = None,
        programs: Programs | None = None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> Self:
        """Start one and return when it can be used: about 4 s.

        Without a `name` it gets one by chance. `inert`: see settings.Spec. `users`: name to groups, beside
        settings.USERS, with tokens. `on_step` hears what is being waited for. Raises UserError where the name
        is in use or no control plane is built, SandboxFailed where it does not come up.
        """
        check_counts(clusters, nodes)
        spec = Spec(
            name=places.check_name(name) if name else f"s-{secrets.token_hex(4)}",
            programs=programs or build.find(),
            clusters=clusters,
            nodes=nodes,
            inert=tuple(inert),
            audit=audit,
            detached=detached,
            ephemeral=ephemeral,
            users={user: tuple(groups) for user, groups in (users or {}).items()},
            crds=tuple(crds),
            node=node or NodeSettings(),
        )
        leftovers.clear_crashed()
        folder = Folder(places.state_home() / spec.name)
        with leftovers.lock(folder, create=True) as lock:
            if lock is None:
                raise UserError(
                    f"a sandbox named {spec.name!r} runs already",
                    hint=f"`isthmus sandbox down --name {spec.name}` ends it; or give another --name",
                )
            leftovers.empty(folder)
            folder.logs.mkdir(mode=0o700)
            folder.write_private(folder.spec, msgspec.json.encode(spec))
            process = _spawn_supervisor(folder, spec, lock)
        try:
            _wait_ready(process, on_step)
            return cls(folder, process)
        except BaseException:
            _end_process(process)
            if ephemeral:
                leftovers.remove(folder)  # where it was ended before it could do so itself
            raise

    @classmethod
    def attach(cls, name: str) -> Self:
        """The one of that name that runs. Raises UserError where there is none."""
        folder = Folder(places.state_home() / places.check_name(name))
        record = folder.try_read_record()
        if record is None or not processes.is_alive(record.supervisor):
            raise UserError(
                f"no sandbox named {name!r} runs",
                hint=f"`isthmus sandbox up --name {name}` starts one",
            )
        return cls(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def record(self) -> Record:
        """What its supervisor says of it now. Raises SandboxFailed where it is gone."""
        record = self.folder.try_read_record()
        if record is None:
            raise SandboxFailed(f"the sandbox {self.name} is gone")
        return record

    def cluster(self, index: int = 0) -> Cluster:
        """One of its clusters. Raises UserError for one that there is not."""
        if not 0 <= index < len(self.clusters):
            raise UserError(f"--cluster {index}: the sandbox {self.name} has {len(self.clusters)}, from 0")
        return self.clusters[index]

    def stop(self) -> None:
        """End it and remove its folder. Harmless where it has ended."""
        if self._process is not None:
            _end_process(self._process)
        else:
            record = self.folder.try_read_record()
            if record is not None:
                processes.end(record.supervisor, grace_s=STOP_TIMEOUT_S)
        leftovers.remove(self.folder)

    def wait(self) -> int:
        """Return the exit code of its supervisor when it ends; only where this process started it."""
        assert self._process is not None
        return self._process.wait()

    def call(self, do: str, **parameters: Any) -> Raw:
        """Ask the supervisor for something, and return its answer. Raises ControlFailed or UserError."""
        return control.call(self.folder.path, {"do": do, **parameters}, timeout_s=STEER_TIMEOUT_S)

    def steer(self, component: str, action: str, *, grace_s: float = 0.0) -> None:
        """`start`, `stop`, `restart`, `pause` or `resume` a component: `etcd`, `apiserver-0`, ...

        `pause` freezes it with its connections open. Stopping kills it at once, unless `grace_s` leaves it
        that long. On return from starting an API server it is ready.
        """
        self.call("component", name=component, action=action, grace_s=grace_s)

    def run(self, name: str, argv: Sequence[str], *, cluster: int | None = None) -> None:
        """Start a process of the caller's that lives and ends with the sandbox, and is started again if it
        dies. It has a log and a row in the status under `name`, and can be steered. As a part of a `cluster`
        it is taken away and brought back with that."""
        self.call("run", name=name, argv=list(argv), cluster=cluster)

    def reserve_port(self) -> int:
        """A port of 127.0.0.1 that is the sandbox's until it ends, for a server that shares ports."""
        port: int = self.call("reserve")["port"]
        return port

    def restart_apiserver(self, index: int = 0, *, grace_s: float = 0.0) -> None:
        """Kill one (or end it within `grace_s`), start it again at its address, wait until it is ready."""
        self.steer(f"apiserver-{index}", "restart", grace_s=grace_s)

    def set_node(self, settings: NodeSettings) -> None:
        """Change how the simulated nodes treat pods from now on."""
        self.call("node", settings=msgspec.to_builtins(settings))

    def install_crds(self, crds: Sequence[Raw]) -> None:
        """Cluster.install_crds in every cluster."""
        for each in self.clusters:
            each.install_crds(crds)

    def audit_events(self, user: str = "") -> list[Raw]:
        """Cluster.audit_events of the first cluster."""
        return self.cluster(0).audit_events(user)


def _spawn_supervisor(folder: Folder, spec: Spec, lock: int) -> subprocess.Popen[bytes]:
    with folder.log("supervisor").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "isthmus.sandbox.supervisor", str(folder.path), str(lock)],
            stdin=subprocess.DEVNULL if spec.detached else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder.path,
            start_new_session=True,
            pass_fds=(lock,),
        )


def _wait_ready(process: subprocess.Popen[bytes], on_step: Callable[[str], None]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            message: Raw = msgspec.json.decode(line)
            if "error" in message:
                raise SandboxFailed(f"the sandbox did not come up: {message['error']}")
            on_step(message["step"])
            if message["step"] == "ready":
                return
    raise SandboxFailed("the sandbox's supervisor was killed before it was ready")


def _end_process(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
