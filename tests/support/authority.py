"""A certificate authority for a test, and its certificates."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
#: Python 3.13 and later verify that certificates are complete (RFC 5280).
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


class Authority:
    """Signs certificates. Its clients trust `ca_file`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = (
            _builder(_NAME, self._key)
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(_SIGNS_CERTIFICATES, True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False)
        )
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def server(self, *names: str) -> ssl.SSLContext:
        """Return the context of a server with the names 127.0.0.1 and `names`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        name = x509.SubjectAlternativeName([loopback, *map(x509.DNSName, names)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = _builder(subject, key).add_extension(name, False)
        signed = certificate.add_extension(issuer, False).sign(self._key, hashes.SHA256())
        path = self._folder / "server.pem"
        path.write_bytes(_private_pem(key) + _pem(signed))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def client(self) -> ssl.SSLContext:
        """Return the context of a client that trusts only this authority."""
        return ssl.create_default_context(cafile=str(self.ca_file))


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
