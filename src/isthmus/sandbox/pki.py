"""Key material of one sandbox: a certificate authority, the servers' certificate, the service account keys.

The supervisor makes it afresh at each start. Later on `issue_client` makes client certificates from it, which
is how users that nobody asked for at the start are added to a running API server (the user is the common
name, groups are organisations), and `issue_server` those of further servers. Keys are ECDSA P-256: made in a
millisecond where RSA takes a tenth of a second. `cryptography` is imported inside the functions, since it is
large and only the sandbox needs it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

SERVER_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
FRONT_PROXY: Final = "front-proxy-client"
"""As whom API servers carry requests on to aggregated ones."""
LIFETIME: Final = timedelta(days=365)


class Authority:
    """A certificate authority in `folder`: ca.crt and ca.key.

    `now` (seconds since the epoch) is when certificates begin to hold, less an hour for skewed clocks.
    """

    def __init__(self, folder: Path, *, now: float) -> None:
        self.folder = folder
        self._now = datetime.fromtimestamp(now, UTC)

    @property
    def certificate_pem(self) -> str:
        """The CA's own certificate, for clients to trust."""
        return (self.folder / "ca.crt").read_text()

    def create(self, addresses: Sequence[str]) -> None:
        """Write ca.crt, ca.key, server.crt, server.key (for SERVER_NAMES and `addresses`), sa.key, sa.pub,
        front-proxy.crt and front-proxy.key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = _make_key()
        name = _name("isthmus-sandbox", ())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            self._builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self._write("ca", builder, key, key)
        self.issue_server("server", "kube-apiserver", names=SERVER_NAMES, addresses=addresses)
        self._issue("front-proxy", _name(FRONT_PROXY, ()), [])
        accounts = _make_key()
        _write_private(self.folder / "sa.key", _key_pem(accounts))
        (self.folder / "sa.pub").write_bytes(
            accounts.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def issue_server(
        self, stem: str, subject: str, *, names: Sequence[str], addresses: Sequence[str] = ()
    ) -> None:
        """Write STEM.crt and STEM.key, with which a server is believed under these names and addresses."""
        from cryptography import x509

        alternatives: list[x509.GeneralName] = [x509.DNSName(host) for host in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        self._issue(stem, _name(subject, ()), alternatives)

    def issue_client(self, user: str, groups: Sequence[str]) -> tuple[str, str]:
        """(certificate, key) as PEM with which the API server takes a client for `user` in `groups`."""
        return self._issue("", _name(user, groups), [])

    def _issue(
        self, stem: str, subject: x509.Name, alternatives: Sequence[x509.GeneralName]
    ) -> tuple[str, str]:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority = x509.load_pem_x509_certificate((self.folder / "ca.crt").read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = _make_key()
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] if alternatives else [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, authority.subject, key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return self._write(stem, builder, key, signer)

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - timedelta(hours=1))
            .not_valid_after(self._now + LIFETIME)
        )

    def _write(
        self,
        stem: str,
        builder: x509.CertificateBuilder,
        key: EllipticCurvePrivateKey,
        signer: EllipticCurvePrivateKey,
    ) -> tuple[str, str]:
        """Sign, write STEM.crt and STEM.key (nothing where `stem` is empty), and return both as PEM."""
        from cryptography.hazmat.primitives import hashes, serialization

        certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = _key_pem(key)
        if stem:
            (self.folder / f"{stem}.crt").write_bytes(certificate)
            _write_private(self.folder / f"{stem}.key", private)
        return certificate.decode(), private.decode()


def _make_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    # The API server reads EC keys in this older form only where they sign service account tokens.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(common: str, organisations: Sequence[str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organisations),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)
