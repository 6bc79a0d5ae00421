"""A temporary certificate authority for one run of the simulated API server. Nothing is stored in the repository."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = dt.timedelta(days=365)


def _name(common: str, groups: tuple[str, ...] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class TlsAuthority:
    """A certificate authority with a new key."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("outscaler simulated cluster")
        self._certificate = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        today = dt.datetime.now(dt.UTC)  # certificates are checked against the wall clock, not the cluster's clock
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - dt.timedelta(hours=1))
            .not_valid_after(today + _YEAR)
        )

    @property
    def pem(self) -> bytes:
        """Return the authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, common: str, groups: tuple[str, ...] = (), *, server: bool = False, address: str = "127.0.0.1"
    ) -> tuple[bytes, bytes]:
        """Return (certificate, key) as PEM: for the server on `localhost` and its address, or for a user and its
        groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            self._builder(_name(common, groups), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if server:
            names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(address))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)

    def server_context(self, address: str = "127.0.0.1") -> ssl.SSLContext:
        """Return the server's TLS context. Client certificates of this authority are accepted, but not required."""
        certificate, key = self.issue("localhost", server=True, address=address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with TemporaryDirectory() as directory:  # the ssl module reads keys from files only
            path = Path(directory) / "server.pem"
            path.touch(mode=0o600)
            path.write_bytes(certificate + key)
            context.load_cert_chain(path)
        context.load_verify_locations(cadata=self.pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context
