"""`isthmus sandbox demo-export`: a pool's Services are exported, kept right and withdrawn, told step by step.

sandbox.py calls `run`. A sandbox with the Multi-Cluster Services API plays the cluster, a real operator does
the work; this module changes what a person would change, waits for what must come of it, and shows the
exports and the events that the step has caused. A step whose outcome does not come is an error. The sandbox
is taken down at the end, whatever happens, unless the demo came to its end with --keep.
"""

from __future__ import annotations

import copy
import http.client
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from isthmus.cli.demo import ATTEMPTS, OPERATOR_TIMEOUT_S, Story, free_port, tail
from isthmus.errors import UserError, WorldError
from isthmus.sandbox import pools
from isthmus.sandbox.pools import EXPORTS, GRAPHS, PROPERTIES, PROPERTY, RELAYS, Pools, Raw
from isthmus.sandbox.scene import SandboxScene

NAME: Final = "demo-export"
CLUSTER_ID: Final = "east"
POOL: Final = "chat"
POLL_S: Final = 0.1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(*, keep: bool) -> None:
    """Play the demo. Raises UserError where it fails; exits with 130 where it is interrupted."""
    story = Story()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    scene, finished = None, False
    try:
        scene = _make_sandbox(story, keep)
        _name_cluster(scene, story)
        _start_operator(scene, story)
        _Play(Pools(scene.sandbox.cluster(), scene.namespace), story).all()
        finished = True
    except KeyboardInterrupt:
        story.say("interrupted")
        sys.exit(130)
    finally:
        if scene is not None and not (keep and finished):
            for number in SIGNALS:  # impatience must not leave half of it
                signal.signal(number, signal.SIG_IGN)
            story.say("cleaning up")
            scene.sandbox.stop()
    if keep:
        _explain(scene, story)
    else:
        story.say("everything is gone again")


class _Play:
    """The steps, in their order."""

    def __init__(self, cluster: Pools, story: Story) -> None:
        self._pools = cluster
        self._story = story
        self._graph, self._relay_manifest = pools.example()

    def all(self) -> None:
        """Everything."""
        for step in (
            self._graph_up,
            self._relay_up,
            self._renamed,
            self._deleted,
            self._made_again,
            self._foreign,
            self._given_back,
            self._other_cluster,
        ):
            step()
        self._story.show("")
        self._story.say("done")

    def _graph_up(self) -> None:
        self._begin("a graph comes up", f"kubectl apply of the graph in {pools.EXAMPLE}")
        self._pools.apply(GRAPHS, self._graph)
        self._until("the graph is ready", lambda: self._ready(GRAPHS) == "True")
        self._show_ready("graph", GRAPHS)
        self._exports({})

    def _relay_up(self) -> None:
        self._begin("a relay is put beside it", "kubectl apply of the relay there")
        self._pools.apply(RELAYS, self._relay_manifest)
        self._exports({"chat-pool-relay": POOL, "chat-frontend": POOL}, ExportCreated=2)
        self._until("the relay is ready", lambda: self._ready(RELAYS) == "True")
        self._relay()

    def _renamed(self) -> None:
        self._begin("the frontend is renamed to Gateway", f"kubectl edit dynamographdeployment {POOL}")
        self._graph["spec"]["components"][0]["name"] = "Gateway"
        self._pools.apply(GRAPHS, self._graph)
        expected = {"chat-pool-relay": POOL, "chat-gateway": POOL}
        self._exports(expected, ExportCreated=1, ExportDeleted=1)

    def _deleted(self) -> None:
        self._begin("the graph is deleted", f"kubectl delete dynamographdeployment {POOL}")
        self._pools.delete(GRAPHS, POOL)
        self._exports({}, ExportDeleted=2)
        self._until("the relay says why", lambda: self._reason() == "GraphNotFound")
        self._relay()

    def _made_again(self) -> None:
        self._begin(
            "the graph is made again; nobody touches the relay",
            "kubectl apply of the graph, as it was at first",
        )
        self._graph, _ = pools.example()
        self._pools.apply(GRAPHS, self._graph)
        self._exports({"chat-pool-relay": POOL, "chat-frontend": POOL}, ExportCreated=2)
        self._until("the relay is ready", lambda: self._ready(RELAYS) == "True")
        self._relay()

    def _foreign(self) -> None:
        self._begin(
            "somebody exports chat-api by hand, and then the graph gets a frontend Api",
            "kubectl create -f chat-api.yaml; " + f"kubectl edit dynamographdeployment {POOL}",
        )
        self._pools.apply(EXPORTS, self._by_hand())
        before = self._pools.get(EXPORTS, "chat-api")["metadata"]["resourceVersion"]
        frontend = copy.deepcopy(self._graph["spec"]["components"][0])
        self._graph["spec"]["components"].append(frontend | {"name": "Api"})
        self._pools.apply(GRAPHS, self._graph)
        self._until("the relay has seen the change", self._relay_is_up_to_date)
        self._exports({"chat-pool-relay": POOL, "chat-frontend": POOL, "chat-api": ""})
        after = self._pools.get(EXPORTS, "chat-api")["metadata"]["resourceVersion"]
        if after != before:
            raise WorldError("the export that somebody made by hand was changed")
        self._story.say("chat-api was left alone: it is as it was")

    def _given_back(self) -> None:
        self._begin("the export that was made by hand is deleted", "kubectl delete serviceexport chat-api")
        self._pools.delete(EXPORTS, "chat-api")
        expected = {"chat-pool-relay": POOL, "chat-frontend": POOL, "chat-api": POOL}
        self._exports(expected, ExportCreated=1)

    def _other_cluster(self) -> None:
        self._begin(
            "the cluster is given another ID than the relay has",
            f"kubectl edit clusterproperty {PROPERTY}",
        )
        self._pools.merge(PROPERTIES, PROPERTY, {"spec": {"value": "west"}})
        expected = {"chat-pool-relay": POOL, "chat-frontend": POOL, "chat-api": POOL}
        self._exports(expected, ClusterIDMismatch=1)

    # What steps are made of

    def _begin(self, title: str, command: str) -> None:
        self._story.show("")
        self._story.say(f"{title}: {command}")

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        self._pools.wait(what, holds)

    def _exports(self, expected: dict[str, str], **reasons: int) -> None:
        """Wait until there are just these, and these events are new; show both."""
        self._until(
            f"the exports are {', '.join(expected) or 'gone'}", lambda: self._pools.exports() == expected
        )
        told: list[pools.Told] = []

        def all_told() -> bool:
            told.extend(self._pools.news(POOL))
            return all(
                sum(each.reason == reason for each in told) >= count for reason, count in reasons.items()
            )

        self._until(f"the events {', '.join(reasons)} are there", all_told)
        self._show_exports(expected)
        for each in told:
            self._story.show(f"    {each.type} {each.reason} ({each.about}): {each.note}")

    def _show_exports(self, found: dict[str, str]) -> None:
        if not sys.stdout.isatty():
            for name, owner in found.items():
                self._story.show(f"    ServiceExport {name}, controlled by {owner or 'nobody'}")
            if not found:
                self._story.show("    no ServiceExport")
            return
        from rich.table import Table

        table = Table("ServiceExport", "controlled by")
        for name, owner in found.items():
            table.add_row(name, owner or "nobody")
        self._story.show(table)

    def _relay(self) -> None:
        self._show_ready("relay", RELAYS)

    def _show_ready(self, what: str, collection: str) -> None:
        ready = self._pools.condition(collection, POOL)
        self._story.show(f"    {what} {POOL}: Ready {ready['status']}, {ready['reason']}: {ready['message']}")

    def _ready(self, collection: str) -> str:
        status: str = self._pools.condition(collection, POOL).get("status", "")
        return status

    def _reason(self) -> str:
        reason: str = self._pools.condition(RELAYS, POOL).get("reason", "")
        return reason

    def _relay_is_up_to_date(self) -> bool:
        graph = self._pools.get(GRAPHS, POOL)["metadata"]["generation"]
        seen = self._pools.get(RELAYS, POOL).get("status", {}).get("observedTarget", {})
        return bool(seen.get("generation") == graph)

    def _by_hand(self) -> Raw:
        return {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ServiceExport",
            "metadata": {"name": "chat-api", "namespace": self._pools.namespace},
        }


def _make_sandbox(story: Story, keep: bool) -> SandboxScene:
    from isthmus.cli.sandbox import progress_view
    from isthmus.sandbox import NodeSettings, Sandbox, build

    with progress_view() as progress:
        programs = build.ensure(progress)
        story.say("starting etcd, kube-apiserver, kube-controller-manager and a simulated node")
        sandbox = Sandbox.start(
            NAME if keep else None,
            detached=keep,
            ephemeral=not keep,
            crds=pools.definitions(),
            node=NodeSettings(ready_delay_s=0.3),
            programs=programs,
        )
    story.say(f"the control plane is ready: {sandbox.cluster().server}")
    return SandboxScene(sandbox)


def _name_cluster(scene: SandboxScene, story: Story) -> None:
    raw_property = {
        "apiVersion": "about.k8s.io/v1beta1",
        "kind": "ClusterProperty",
        "metadata": {"name": PROPERTY},
        "spec": {"value": CLUSTER_ID},
    }
    Pools(scene.sandbox.cluster(), scene.namespace).apply(PROPERTIES, raw_property)
    story.say(f"the cluster says that it is {CLUSTER_ID}: ClusterProperty {PROPERTY}")


def _start_operator(scene: SandboxScene, story: Story) -> None:
    """Return once it is ready. Should another process take its port first, others are tried."""
    config = pools.write_configuration(scene.sandbox.folder.path, "mcs")
    for attempt in range(ATTEMPTS):
        port = free_port()
        flags = [
            f"--config={config}",
            "--controllers=graph,poolrelay",
            f"--health-probe-bind-address=127.0.0.1:{port}",
            "--metrics-bind-address=0",
        ]
        story.say(f"isthmus operator {' '.join(flags)}")
        scene.start_operator(flags)
        deadline = time.monotonic() + OPERATOR_TIMEOUT_S
        while not scene.operator_failed() and time.monotonic() < deadline:
            if _is_ready(port):
                story.say("the operator is ready")
                return
            time.sleep(POLL_S)
        if "in use" not in tail(scene) or attempt == ATTEMPTS - 1:
            break
    raise UserError(f"the operator did not become ready; its log ends:\n{tail(scene)}")


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _explain(scene: SandboxScene, story: Story) -> None:
    story.show(
        "\nIt goes on running. In another shell:\n\n"
        f"    export KUBECONFIG={scene.kubeconfig}\n"
        "    kubectl get dynamographdeployments,dynamopoolrelays,serviceexports,services\n"
        f"    kubectl events --for dynamopoolrelay/{POOL}\n"
        f"    isthmus pool check {POOL}\n"
        f"    isthmus sandbox logs --name {NAME} operator -f\n"
        f"    isthmus sandbox down --name {NAME}    # ends it"
    )


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
