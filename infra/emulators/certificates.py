"""A certificate authority for loopback servers. It is created anew each time, so no key is
stored in the repository.

The certificates satisfy RFC 5280 (key identifiers, key usage), which clients of
Python 3.13 and later require.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = dt.timedelta(days=365)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Signs server and client certificates. Clients must trust `pem`."""

    def __init__(self, name: str = "local authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        self._start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *names: str) -> Pair:
        """Return a server certificate for these host names or addresses, by default for
        loopback."""
        alternatives = x509.SubjectAlternativeName(
            [_general(n) for n in names or ("localhost", "127.0.0.1")]
        )
        return self._issue("server", ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """Return a client certificate. Kubernetes reads the common name as the user and the
        organisations as groups."""
        return self._issue(user, ExtendedKeyUsageOID.CLIENT_AUTH, None, groups)

    def _issue(
        self,
        name: str,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        groups: Sequence[str] = (),
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_subject(name, groups), key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start)
            .not_valid_after(self._start + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def server_context(pair: Pair, client_ca: bytes = b"") -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate. client_ca: PEM of the authority
    whose client certificates are requested, but not required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pair.certificate + pair.key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
