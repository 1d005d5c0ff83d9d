"""The operator's configuration file, typed: upstream's OperatorConfiguration and what Isthmus adds to it.

configcheck.py fills these from the file that app/configfile.py reads; features read the sections that
concern them. Every key that upstream has is known here, so that its files load unchanged.
`OperatorConfiguration()` is what holds where there is no file. No logic.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

API_VERSION: Final = "operator.config.dynamo.nvidia.com/v1alpha1"
KIND: Final = "OperatorConfiguration"

McsImplementation = Literal["", "mcs", "karmada"]
Free = dict[str, Any]
"""A section whose parts belong to what is not run here: any mapping is taken, none is looked into."""


class Section(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Base of every mapping in the file."""


class Metrics(Section, frozen=True, kw_only=True):
    """server.metrics. No `bind_address` is every address; `secure` has no effect: it is plain HTTP here."""

    bind_address: str = ""
    port: int = 8080
    secure: bool | None = None


class HealthProbe(Section, frozen=True, kw_only=True):
    """server.healthProbe."""

    bind_address: str = ""
    port: int = 8081


class Webhook(Section, frozen=True, kw_only=True):
    """server.webhook; Isthmus has no webhooks."""

    bind_address: str = ""
    host: str = "0.0.0.0"
    port: int = 9443
    cert_dir: str = ""
    cert_provision_mode: Literal["auto", "manual"] = "auto"
    secret_name: str = "webhook-server-cert"
    service_name: str = ""


class Server(Section, frozen=True, kw_only=True):
    """server."""

    metrics: Metrics = Metrics()
    health_probe: HealthProbe = HealthProbe()
    webhook: Webhook = Webhook()


class LeaderElection(Section, frozen=True, kw_only=True):
    """leaderElection: `id` is the Lease's name."""

    enabled: bool = False
    id: str = ""
    namespace: str = ""


class Scope(Section, frozen=True, kw_only=True):
    """namespace.scope: the marker Lease of a restricted operator, as durations such as `30s`."""

    lease_duration: str = "30s"
    lease_renew_interval: str = "10s"


class Namespace(Section, frozen=True, kw_only=True):
    """namespace: `restricted` is the only namespace to work in; all where it is empty."""

    restricted: str = ""
    scope: Scope = Scope()


class Switch(Section, frozen=True, kw_only=True):
    """A part that upstream detects unless told."""

    enabled: bool | None = None


class Grove(Section, frozen=True, kw_only=True):
    """orchestrators.grove."""

    enabled: bool | None = None
    termination_delay: str = "15m"


class Orchestrators(Section, frozen=True, kw_only=True):
    """orchestrators; Isthmus runs single-node components only."""

    grove: Grove = Grove()
    lws: Switch = Switch()
    kai_scheduler: Switch = Switch()
    volcano_scheduler: Switch = Switch()


class Infrastructure(Section, frozen=True, kw_only=True):
    """infrastructure: what pods of a graph are told through their environment (GD-36); TLS paths have no
    effect."""

    nats_address: str = ""
    etcd_address: str = ""
    model_express_url: str = msgspec.field(default="", name="modelExpressURL")
    prometheus_endpoint: str = ""
    nats_tls_ca_path: str = msgspec.field(default="", name="natsTLSCAPath")
    nats_tls_client_cert_path: str = msgspec.field(default="", name="natsTLSClientCertPath")
    nats_tls_client_key_path: str = msgspec.field(default="", name="natsTLSClientKeyPath")
    tcp_tls_cert_path: str = msgspec.field(default="", name="tcpTLSCertPath")
    tcp_tls_key_path: str = msgspec.field(default="", name="tcpTLSKeyPath")
    tcp_tls_ca_path: str = msgspec.field(default="", name="tcpTLSCAPath")
    tcp_tls_client_cert_path: str = msgspec.field(default="", name="tcpTLSClientCertPath")
    tcp_tls_client_key_path: str = msgspec.field(default="", name="tcpTLSClientKeyPath")
    tcp_tls_client_ca_path: str = msgspec.field(default="", name="tcpTLSClientCAPath")
    tcp_tls_server_name: str = msgspec.field(default="", name="tcpTLSServerName")


class Rbac(Section, frozen=True, kw_only=True):
    """rbac: roles of planners, profiling and endpoint pickers, which are not run here."""

    planner_cluster_role_name: str = ""
    dgdr_profiling_cluster_role_name: str = ""
    epp_cluster_role_name: str = ""


class Mpi(Section, frozen=True, kw_only=True):
    """mpi: for multinode, which is not run here."""

    ssh_secret_name: str = ""
    ssh_secret_namespace: str = ""


class Discovery(Section, frozen=True, kw_only=True):
    """discovery: the backend of graphs that do not choose one (GD-24)."""

    backend: Literal["kubernetes", "etcd"] = "kubernetes"


class Gpu(Section, frozen=True, kw_only=True):
    """gpu."""

    discovery_enabled: bool | None = None


class Logging(Section, frozen=True, kw_only=True):
    """logging."""

    level: Literal["debug", "info", "warn", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


class Security(Section, frozen=True, kw_only=True):
    """security."""

    enable_http2: bool = msgspec.field(default=False, name="enableHTTP2")


class MultiCluster(Section, frozen=True, kw_only=True):
    """multiCluster: whether and how pools are exported (PR-1).

    `exported_labels` and `exported_annotations` become the spec of each export; `sweep_on_clear`: with no
    implementation set, delete at start the exports that a relay controls (PR-110). Only the first is
    upstream's.
    """

    mcs_implementation: McsImplementation = ""
    exported_labels: dict[str, str] = {}
    exported_annotations: dict[str, str] = {}
    sweep_on_clear: bool = True


class RelayDiscovery(Section, frozen=True, kw_only=True):
    """relay.discovery: the discovery service that relays register with, none where `url` is empty.

    `token_secret` and `ca_config_map` name a Secret (key `token`) and a ConfigMap (key `ca.crt`) in the
    namespace of each relay.
    """

    url: str = ""
    token_secret: str = ""
    ca_config_map: str = ""


class RelayLocation(Section, frozen=True, kw_only=True):
    """relay.location: where this cluster is, as routers are told. The zone is that of a pool's nodes where it
    is empty."""

    region: str = ""
    zone: str = ""
    datacenter: str = ""


class Relay(Section, frozen=True, kw_only=True):
    """relay, which upstream has not: what runs in a relay's pod where its DynamoPoolRelay says nothing.
    Without an image, each DynamoPoolRelay must name one. `metadata_rights`: let it keep
    DynamoWorkerMetadata, which upstream's relay does and ours does not."""

    image: str = ""
    command: tuple[str, ...] = ("isthmus", "relay")
    metadata_rights: bool = False
    discovery: RelayDiscovery = RelayDiscovery()
    location: RelayLocation = RelayLocation()


class OperatorConfiguration(Section, frozen=True, kw_only=True):
    """The whole file; without arguments, what holds where there is none."""

    api_version: str = API_VERSION
    kind: str = KIND
    server: Server = Server()
    leader_election: LeaderElection = LeaderElection()
    namespace: Namespace = Namespace()
    orchestrators: Orchestrators = Orchestrators()
    dra: Switch = Switch()
    infrastructure: Infrastructure = Infrastructure()
    ingress: Free = {}
    service_mesh: Free = {}
    rbac: Rbac = Rbac()
    mpi: Mpi = Mpi()
    checkpoint: Free = {}
    lpx: Free = {}
    discovery: Discovery = Discovery()
    gpu: Gpu = Gpu()
    logging: Logging = Logging()
    security: Security = Security()
    multi_cluster: MultiCluster = MultiCluster()
    relay: Relay = Relay()
