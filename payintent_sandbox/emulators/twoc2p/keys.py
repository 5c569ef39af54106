"""RSA key pairs as PEM, for the maintenance API."""

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

EXPONENT, BITS = 65_537, 2_048
_PAIRS_MAX = 100  # number of parsed private keys in the cache


def make_pair() -> tuple[str, str]:
    """Generate an RSA key pair; return the private and the public key as PEM."""
    key = generate_private_key(EXPONENT, BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private.decode(), public_pem(key)


def public_pem(key: RSAPrivateKey) -> str:
    """Return the public half of a key as PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@lru_cache(maxsize=_PAIRS_MAX)  # parsing a key takes longer than everything else in a callback
def read_private(pem: str) -> RSAPrivateKey:
    """Parse a private key. Raises ValueError for anything else."""
    key = load_pem_private_key(pem.encode(), None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("this is not an RSA key")  # noqa: TRY004 - the text is invalid
    return key


def read_public(pem: str) -> RSAPublicKey:
    """Parse a public key. Raises ValueError for anything else."""
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, RSAPublicKey):
        raise ValueError("this is not an RSA key")  # noqa: TRY004 - the text is invalid
    return key
