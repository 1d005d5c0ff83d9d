from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.kube.credentials import REREAD_S, Pem
from isthmus.kube.tls import TlsSettings, TlsSource
from tests.support.certs import Authority
from tests.support.clock import FakeClock


@pytest.mark.covers("R24")
async def test_ca_file_must_be_read_again_within_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "ca.crt"
    path.write_bytes(Authority().pem)
    source = TlsSource(TlsSettings(ca_path=path))
    first = await source.refresh(clock, None)
    assert source.cached(clock.monotonic(), None) is first
    await clock.advance(REREAD_S)
    assert source.cached(clock.monotonic(), None) is None
    assert await source.refresh(clock, None) is first  # unchanged: connections in the pool stay usable
    path.write_bytes(Authority("new").pem)
    source.renew()
    assert source.cached(clock.monotonic(), None) is None
    second = await source.refresh(clock, None)
    assert second is not first
    assert second.verify_mode is ssl.CERT_REQUIRED
    assert second.check_hostname


async def test_broken_ca_file_must_leave_the_last_context_in_use(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "ca.crt"
    path.write_bytes(Authority().pem)
    source = TlsSource(TlsSettings(ca_path=path))
    first = await source.refresh(clock, None)
    for broken in (b"half a fi", b""):
        path.write_bytes(broken)
        source.renew()
        assert await source.refresh(clock, None) is first
    path.unlink()
    source.renew()
    assert await source.refresh(clock, None) is first


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (TlsSettings(ca_path=Path("/nowhere/ca.crt")), "cannot read /nowhere/ca.crt"),
        (TlsSettings(ca_pem=b"rubbish"), "unusable"),
        (TlsSettings(insecure=True, certificate=Pem(b"x", b"y")), "unusable"),
    ],
)
async def test_material_that_was_never_usable_must_be_refused(settings: TlsSettings, text: str) -> None:
    with pytest.raises(UserError, match=text):
        await TlsSource(settings).refresh(FakeClock(), None)


async def test_empty_ca_file_never_means_the_systems_authorities(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"\n")
    with pytest.raises(UserError, match="is empty"):
        await TlsSource(TlsSettings(ca_path=path)).refresh(FakeClock(), None)


async def test_insecure_must_check_nothing() -> None:
    context = await TlsSource(TlsSettings(insecure=True)).refresh(FakeClock(), None)
    assert context.verify_mode is ssl.CERT_NONE


async def test_plugin_certificate_must_make_a_new_context() -> None:
    clock = FakeClock()
    authority = Authority()
    source = TlsSource(TlsSettings(ca_pem=authority.pem))
    plain = await source.refresh(clock, None)
    pem = Pem(*authority.issue("someone", loopback=False))
    assert source.cached(clock.monotonic(), pem) is None
    assert await source.refresh(clock, pem) is not plain
    assert source.cached(clock.monotonic(), pem) is not None
