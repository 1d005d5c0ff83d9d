"""Which registrations and imports make a pool, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from isthmus.api.endpointslices import EndpointPort, EndpointSlice
from isthmus.api.pools import Registration
from isthmus.discovery.plan.imports import ServiceImport, of_karmada, of_mcs
from isthmus.discovery.plan.join import KARMADA, MCS, REGISTRATIONS, Joined, Suffixes, join
from tests.support.discoveries import karmada_slice, mcs_slice, registration, service_import


def _mcs(
    registrations: Iterable[Registration],
    slices: Iterable[EndpointSlice],
    imports: Sequence[ServiceImport] | None = None,
) -> Joined:
    known = None if imports is None else {each.key: each for each in imports}
    return join(registrations, of_mcs(slices, known), mode=MCS)


def _both(cluster: str = "east", name: str = "chat") -> list[EndpointSlice]:
    return [
        mcs_slice(cluster, f"{name}-pool-relay"),
        mcs_slice(cluster, f"{name}-frontend", ["10.1.0.9"]),
    ]


@pytest.mark.covers("DS-9", "PW-3")
def test_registrations_must_be_the_list_where_nothing_is_imported() -> None:
    (pool,) = join([registration()], {}, mode=REGISTRATIONS).pools
    assert (pool.frontend_urls, pool.source) == (("http://east.example:8000",), "registration")


@pytest.mark.covers("D-13", "DS-10", "DS-14", "DS-12")
def test_registration_must_be_listed_with_the_imported_addresses_and_not_its_own() -> None:
    (pool,) = _mcs([registration()], _both()).pools
    assert pool.relay_urls == ("http://10.1.0.7:5561",)
    assert pool.frontend_urls == ("http://10.1.0.9:8000",)
    assert pool.source == "registration+import"


@pytest.mark.covers("D-13")
def test_two_clusters_that_export_one_name_must_be_two_pools() -> None:
    joined = _mcs([registration("east"), registration("west")], [*_both("east"), *_both("west")])
    assert [pool.cluster_id for pool in joined.pools] == ["east", "west"]
    assert joined.unmatched == ()


@pytest.mark.covers("D-13", "PW-12")
@pytest.mark.parametrize(
    ("slices", "reasons"),
    [
        ([], {("registration", "no_relay_import")}),
        (_both("west"), {("registration", "cluster_id_differs"), ("import", "cluster_id_differs")}),
        (
            [mcs_slice("east", "chat-pool-relay", ready=False), mcs_slice("east", "chat-frontend")],
            {("registration", "relay_not_ready")},
        ),
        ([mcs_slice("east", "chat-pool-relay", terminating=True)], {("registration", "relay_not_ready")}),
        ([mcs_slice("east", "chat-pool-relay", [])], {("registration", "relay_not_ready")}),
        (
            [mcs_slice("east", "chat-pool-relay", namespace="other")],
            {("registration", "no_relay_import"), ("import", "no_registration")},
        ),
        ([*_both(), mcs_slice("east", "late-pool-relay")], {("import", "no_registration")}),
    ],
)
def test_what_does_not_match_must_be_told_with_its_reason(
    slices: list[EndpointSlice], reasons: set[tuple[str, str]]
) -> None:
    assert {(each.kind, each.reason) for each in _mcs([registration()], slices).unmatched} == reasons


@pytest.mark.covers("R42", "DS-15")
def test_endpoint_that_does_not_say_must_count_as_ready() -> None:
    (pool,) = _mcs([registration()], [mcs_slice("east", "chat-pool-relay", ready=None)]).pools
    assert pool.frontend_urls == ()


@pytest.mark.covers("R37")
@pytest.mark.parametrize("clusters", [[], ["west"]])
def test_slices_of_a_cluster_that_the_import_no_longer_has_must_be_no_backend(clusters: list[str]) -> None:
    imports = [service_import(f"chat-{end}", clusters) for end in ("pool-relay", "frontend")]
    joined = _mcs([registration(), registration("west")], [*_both("east"), *_both("west")], imports)
    assert [pool.cluster_id for pool in joined.pools] == clusters


@pytest.mark.covers("R37")
def test_slices_without_their_import_must_be_no_backend_where_imports_are_served() -> None:
    assert _mcs([registration()], _both(), []).pools == ()
    assert len(_mcs([registration()], _both(), None).pools) == 1


@pytest.mark.covers("R37")
def test_import_without_a_registration_must_be_no_pool() -> None:
    assert _mcs([], _both()).pools == ()


def test_import_that_says_nothing_of_clusters_must_leave_it_to_the_slices() -> None:
    imports = [service_import(f"chat-{end}", None) for end in ("pool-relay", "frontend")]
    assert len(_mcs([registration()], _both(), imports).pools) == 1


def test_import_without_slices_must_stand_for_its_only_cluster() -> None:
    imports = [
        service_import("chat-pool-relay", ["east"], ips=["10.9.0.1"]),
        service_import("chat-frontend", ["east"], ips=["10.9.0.2"]),
    ]
    (pool,) = _mcs([registration()], [], imports).pools
    assert pool.relay_urls == ("http://10.9.0.1:5561",)
    assert pool.frontend_urls == ("http://10.9.0.2:8000",)


@pytest.mark.parametrize(("clusters", "ips"), [(["east", "west"], ["10.9.0.1"]), (["east"], [])])
def test_import_without_slices_must_say_so_where_it_could_be_anybodys(
    clusters: list[str], ips: list[str]
) -> None:
    joined = _mcs([registration()], [], [service_import("chat-pool-relay", clusters, ips=ips)])
    assert joined.pools == ()
    assert [each.reason for each in joined.unmatched if each.kind == "registration"] == ["no_endpoints"]


@pytest.mark.covers("D-14", "DS-13")
def test_karmadas_slices_must_be_read_by_their_work_and_without_it_not_at_all() -> None:
    slices = [karmada_slice("m1", "chat-pool-relay"), karmada_slice("m1", "chat-frontend", ["10.1.0.9"])]
    (pool,) = join([registration("m1")], of_karmada(slices), mode=KARMADA).pools
    assert pool.frontend_urls == ("http://10.1.0.9:8000",)
    bare = [karmada_slice("m1", "chat-pool-relay", work=False)]
    assert join([registration("m1")], of_karmada(bare), mode=KARMADA).pools == ()


@pytest.mark.covers("R40", "DS-11")
@pytest.mark.parametrize(("length", "reason"), [(44, "no_relay_import"), (45, "name_too_long")])
def test_name_that_karmada_cannot_import_must_be_the_reason(length: int, reason: str) -> None:
    (each,) = join([registration("m1", "c" * length)], {}, mode=KARMADA).unmatched
    assert each.reason == reason
    assert join([registration("m1", "c" * length)], {}, mode=MCS).unmatched[0].reason == "no_relay_import"


@pytest.mark.covers("D-15")
def test_address_of_version_6_must_be_in_brackets() -> None:
    slices = [mcs_slice("east", "chat-pool-relay", ["fd00::7"])]
    assert _mcs([registration()], slices).pools[0].relay_urls == ("http://[fd00::7]:5561",)


@pytest.mark.covers("DS-15")
@pytest.mark.parametrize(("port", "found"), [(("grpc", 99), True), (("only", 99), True)])
def test_port_must_be_the_named_one_or_the_only_one(port: tuple[str, int], found: bool) -> None:
    pools = _mcs([registration()], [mcs_slice("east", "chat-pool-relay", port=port)]).pools
    assert bool(pools) is found
    assert pools[0].relay_urls == ("http://10.1.0.7:99",)


@pytest.mark.covers("D-16", "DS-16", "DS-17")
def test_names_that_could_be_read_in_two_ways_must_be_read_by_the_registered_one() -> None:
    names = ["a-frontend", "a", "a-b", "x-frontend"]
    slices = [slice_ for name in names for slice_ in _both("east", name)]
    pools = {p.name: p for p in _mcs([registration("east", name) for name in names], slices).pools}
    assert sorted(pools) == sorted(names)
    assert all(len(pool.frontend_urls) == 1 for pool in pools.values())
    alone = _mcs([registration("east", "x")], _both("east", "x-frontend"))
    assert alone.pools == ()


@pytest.mark.covers("D-17", "DS-16")
def test_frontend_of_another_name_must_leave_the_pool_without_frontends() -> None:
    slices = [mcs_slice("east", "chat-pool-relay"), mcs_slice("east", "chat-api")]
    assert _mcs([registration()], slices).pools[0].frontend_urls == ()


@pytest.mark.covers("DS-11")
def test_suffixes_must_be_those_that_are_set() -> None:
    slices = [mcs_slice("east", "chat-r", port=("grpc", 1)), mcs_slice("east", "chat-f", port=("http", 2))]
    (pool,) = join([registration()], of_mcs(slices, None), mode=MCS, suffixes=Suffixes("-f", "-r")).pools
    assert pool.frontend_urls == ("http://10.1.0.7:2",)


def test_slices_of_one_service_must_be_merged() -> None:
    slices = [
        mcs_slice("east", "chat-pool-relay"),
        mcs_slice("east", "chat-frontend", ["10.1.0.9", "10.1.0.8"]),
        mcs_slice("east", "chat-frontend", ["10.1.0.8", "10.1.0.10"]),
    ]
    assert _mcs([registration()], slices).pools[0].frontend_urls == (
        "http://10.1.0.10:8000",
        "http://10.1.0.8:8000",
        "http://10.1.0.9:8000",
    )


@pytest.mark.covers("PW-12")
def test_stranger_must_be_of_another_cluster_id_only_where_that_is_why_the_pool_is_missing() -> None:
    slices = [mcs_slice("east", "chat-pool-relay", ready=False), mcs_slice("west", "chat-pool-relay")]
    reasons = [(each.kind, each.reason) for each in _mcs([registration()], slices).unmatched]
    assert reasons == [("registration", "relay_not_ready"), ("import", "no_registration")]


@pytest.mark.covers("PW-12", "DS-15")
def test_relay_that_is_ready_at_no_port_of_its_name_must_say_so() -> None:
    each = mcs_slice("east", "chat-pool-relay")
    ports = (EndpointPort(name="a", port=1), EndpointPort(name="b", port=2))
    (missing,) = _mcs([registration()], [replace(each, ports=ports)]).unmatched
    assert missing.reason == "no_port"


@pytest.mark.covers("PW-12")
@pytest.mark.parametrize(
    ("count", "text"), [(2, "c0, c1;"), (5, "c0, c1, c2, c3, c4;"), (6, "c4 and others;")]
)
def test_clusters_that_have_the_name_must_be_told_five_at_most(count: int, text: str) -> None:
    slices = [mcs_slice(f"c{number}", "chat-pool-relay") for number in range(count)]
    (missing,) = [each for each in _mcs([registration()], slices).unmatched if each.kind == "registration"]
    assert text in missing.message
    assert ("others" in missing.message) == (count > 5)


@pytest.mark.covers("DS-16", "PW-12")
def test_service_that_is_only_the_suffix_must_be_nobodys_relay() -> None:
    assert _mcs([], [mcs_slice("east", "-pool-relay")]).unmatched == ()


@pytest.mark.covers("R37", "PW-12")
@pytest.mark.parametrize(
    ("slices", "clusters", "told"),
    [
        (["east"], [], [("registration", "import_withdrawn")]),
        (
            ["east", "west"],
            ["west"],
            [("registration", "cluster_id_differs"), ("import", "cluster_id_differs")],
        ),
        (["west"], [], [("registration", "no_relay_import")]),
    ],
)
def test_leftovers_must_be_told_as_what_they_are(
    slices: list[str], clusters: list[str], told: list[tuple[str, str]]
) -> None:
    service = "chat-pool-relay"
    found = [mcs_slice(cluster, service) for cluster in slices]
    joined = _mcs([registration()], found, [service_import(service, clusters)])
    assert [(each.kind, each.reason) for each in joined.unmatched] == told
