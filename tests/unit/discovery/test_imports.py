"""What slices and ServiceImports say of other clusters' Services, odd ones included."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from isthmus.api.endpointslices import Endpoint, EndpointPort
from isthmus.api.meta import ObjectMeta
from isthmus.discovery.plan.imports import (
    KARMADA_WORK,
    MAX_ENDPOINTS,
    Endpoints,
    ImportCluster,
    ImportPort,
    ImportSpec,
    ImportStatus,
    ServiceImport,
    Source,
    of_karmada,
    of_mcs,
)
from tests.support.discoveries import karmada_slice, mcs_slice

RELAY = Source("east", "serving", "chat-pool-relay")


def imported(*ports: ImportPort, ips: tuple[str, ...] | None = ("10.9.0.1", "10.9.0.2")) -> Endpoints:
    """The endpoints of an import that has these ports and no slices."""
    found = ServiceImport(
        metadata=ObjectMeta(name=RELAY.service, namespace=RELAY.namespace),
        spec=ImportSpec(ips=ips, ports=ports or None),
        status=ImportStatus(clusters=(ImportCluster(cluster="east"),)),
    )
    return of_mcs([], {(RELAY.namespace, RELAY.service): found})[RELAY]


@pytest.mark.covers("DS-15", "DS-12")
def test_import_without_slices_must_be_asked_at_its_named_ports() -> None:
    found = imported(ImportPort(name="http", port=80), ImportPort(name="grpc", port=81))
    assert (found.grpc, found.http) == ((("10.9.0.1", 81),), (("10.9.0.1", 80),))
    assert (found.urls("grpc"), found.urls("http")) == (("http://10.9.0.1:81",), ("http://10.9.0.1:80",))
    assert (found.total, found.ready, found.bare) == (2, 2, False)


@pytest.mark.covers("DS-15")
def test_only_port_of_an_import_must_do_for_both() -> None:
    found = imported(ImportPort(name="x", port=80))
    assert (found.grpc, found.http) == ((("10.9.0.1", 80),),) * 2


@pytest.mark.covers("DS-15")
def test_import_of_several_ports_without_the_name_must_give_no_address() -> None:
    found = imported(ImportPort(name="x", port=80), ImportPort(name="y", port=81))
    assert (found.grpc, found.http, found.bare) == ((), (), False)
    assert imported(ImportPort(name="grpc")).grpc == ()
    assert imported().grpc == ()


@pytest.mark.covers("DS-15")
def test_port_that_is_not_of_tcp_must_not_be_asked() -> None:
    found = imported(ImportPort(name="grpc", port=80, protocol="UDP"), ImportPort(name="tcp", port=81))
    assert found.grpc == (("10.9.0.1", 81),)


@pytest.mark.parametrize("ips", [None, ()])
def test_import_without_addresses_must_be_bare(ips: tuple[str, ...] | None) -> None:
    assert imported(ImportPort(name="grpc", port=80), ips=ips) == Endpoints(bare=True)


@pytest.mark.covers("DS-12")
@pytest.mark.parametrize("cluster", ["", "east"])
def test_slice_that_does_not_say_whose_it_is_must_be_passed_over(cluster: str) -> None:
    each = mcs_slice(cluster, "" if cluster else "chat-pool-relay")
    assert of_mcs([each], None) == {}


@pytest.mark.covers("DS-12")
def test_import_that_names_a_cluster_without_a_name_must_be_passed_over() -> None:
    found = ServiceImport(metadata=ObjectMeta(name="x"), status=ImportStatus(clusters=(ImportCluster(),)))
    assert of_mcs([], {("serving", "chat-pool-relay"): found}) == {}


@pytest.mark.covers("DS-13", "D-14")
@pytest.mark.parametrize("key", ["kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"])
@pytest.mark.parametrize("value", ["", "chat-pool-relay"])
def test_slice_that_karmada_did_not_collect_must_be_passed_over(key: str, value: str) -> None:
    each = karmada_slice("east", "chat-pool-relay")
    assert list(of_karmada([each])) == [RELAY]
    labels = dict(each.metadata.labels) | {key: value}
    assert of_karmada([replace(each, metadata=replace(each.metadata, labels=labels))]) == {}


@pytest.mark.covers("DS-13", "D-14")
def test_slice_of_another_control_plane_of_karmada_must_be_passed_over() -> None:
    each = karmada_slice("east", "chat-pool-relay")
    for name in ("chat-pool-relay-x", "imported-west-chat-pool-relay", "imported-eastern-x"):
        assert of_karmada([replace(each, metadata=replace(each.metadata, name=name))]) == {}


@pytest.mark.covers("DS-13", "D-14")
def test_slice_of_a_work_that_is_no_clusters_must_be_passed_over() -> None:
    each = karmada_slice("east", "chat-pool-relay")
    odd = {**each.metadata.annotations, KARMADA_WORK: "east"}
    assert of_karmada([replace(each, metadata=replace(each.metadata, annotations=odd))]) == {}


@pytest.mark.covers("DS-15")
def test_endpoint_without_an_address_must_be_counted_and_not_asked() -> None:
    each = mcs_slice("east", "chat-pool-relay")
    (found,) = of_mcs([replace(each, endpoints=(*each.all, Endpoint()))], None).values()
    assert (found.grpc, found.total, found.ready) == ((("10.1.0.7", 5561),), 2, 1)


@pytest.mark.covers("DS-15")
def test_slices_without_a_usable_port_must_have_ready_endpoints_and_no_address() -> None:
    each = mcs_slice("east", "chat-pool-relay")
    ports = (EndpointPort(name="a", port=1), EndpointPort(name="b", port=2))
    (found,) = of_mcs([replace(each, ports=ports)], None).values()
    assert (found.grpc, found.http, found.ready) == ((), (), 1)


def test_addresses_of_one_service_must_be_bounded() -> None:
    many = [f"10.1.{number // 250}.{number % 250}" for number in range(MAX_ENDPOINTS + 10)]
    (found,) = of_mcs([mcs_slice("east", "chat-pool-relay", many)], None).values()
    assert len(found.grpc) == MAX_ENDPOINTS
    assert found.ready == MAX_ENDPOINTS + 10
