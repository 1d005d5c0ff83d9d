"""Pod addresses are unique while in use."""

from __future__ import annotations

import ipaddress

from isthmus.sandbox.addresses import NETWORK, Addresses


def test_addresses_must_be_distinct_and_inside_the_network() -> None:
    addresses = Addresses()
    taken = [addresses.take() for _ in range(2000)]
    assert len(set(taken)) == 2000
    assert all(ipaddress.ip_address(each) in NETWORK for each in taken)


def test_freed_address_must_come_last() -> None:
    addresses = Addresses()
    first = addresses.take()
    addresses.free(first)
    assert first not in [addresses.take() for _ in range(1000)]


def test_claimed_address_never_is_handed_out() -> None:
    addresses = Addresses()
    addresses.claim("198.18.1.1")
    assert "198.18.1.1" not in [addresses.take() for _ in range(5)]


def test_address_that_was_freed_must_be_used_again_when_all_others_are_in_use() -> None:
    addresses = Addresses()
    taken = [addresses.take() for _ in range(NETWORK.num_addresses - 512)]
    addresses.free(taken[7])
    assert addresses.take() == taken[7]
