"""Key material that servers and clients accept."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus.sandbox.pki import Authority

NOW = 1_790_000_000.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "pki", now=NOW)
    made.create(["127.0.0.1", "10.100.0.1"])
    return made


def test_server_certificate_must_name_the_addresses_and_be_signed_by_the_authority(
    authority: Authority,
) -> None:
    server = x509.load_pem_x509_certificate((authority.folder / "server.crt").read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem.encode()))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.100.0.1"]
    assert "localhost" in names.get_values_for_type(x509.DNSName)


def test_server_material_must_be_loadable(authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / "server.crt", authority.folder / "server.key")


def test_client_certificate_must_carry_user_and_groups(authority: Authority) -> None:
    pem, key = authority.issue_client("alice", ["one", "two"])
    certificate = x509.load_pem_x509_certificate(pem.encode())
    subject = certificate.subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["one", "two"]
    assert "PRIVATE KEY" in key


def test_certificates_must_hold_an_hour_before_now_for_skewed_clocks(authority: Authority) -> None:
    pem, _ = authority.issue_client("alice", [])
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert certificate.not_valid_before_utc.timestamp() == NOW - 3600
    assert certificate.not_valid_after_utc.timestamp() > NOW + 300 * 86400


def test_private_keys_never_are_readable_by_others(authority: Authority) -> None:
    assert authority.folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in authority.folder.glob("*.key"))


def test_front_proxy_must_be_a_client_of_its_name(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate((authority.folder / "front-proxy.crt").read_bytes())
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "front-proxy-client"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_further_server_must_be_believed_under_its_names_and_addresses(authority: Authority) -> None:
    authority.issue_server("other", "other", names=["a.b.svc"], addresses=["127.9.9.9"])
    certificate = x509.load_pem_x509_certificate((authority.folder / "other.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.b.svc"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.9.9.9"]
