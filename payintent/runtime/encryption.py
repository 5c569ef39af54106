"""Encryption of stored secrets with a key ring, and digests of API keys.

Each secret is bound to its row, and cannot be decrypted for a different row.
"""

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Mapping
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payintent.runtime.settings import Settings

KEY_BYTES = 32
_NONCE_BYTES = 12
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)


class EncryptionKeyError(Exception):
    """The pepper or the key ring is invalid, or does not match the database."""


class Encryption:
    def __init__(self, pepper: bytes, keys: Mapping[str, bytes]) -> None:
        self._pepper = pepper
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self.current_key_name = next(iter(keys))
        self.pepper_fingerprint = _compute_fingerprint(pepper)
        self.fingerprints = {name: _compute_fingerprint(key) for name, key in keys.items()}
        self._search_keys = {
            name: hmac.digest(key, b"payintent search", "sha256") for name, key in keys.items()
        }

    def digest(self, text: str) -> bytes:
        """Digest an API key. Keys have 256 random bits, so a slow hash is not needed."""
        return hmac.digest(self._pepper, text.encode(), "sha256")

    def compute_search_digest(self, text: str, kind: str) -> str:
        """Digest a search term with the first key of the key ring, to find encrypted values."""
        return _compute_search_digest(self._search_keys[self.current_key_name], text, kind)

    def compute_search_digests(self, text: str, kind: str) -> list[str]:
        """Digest a search term with each key of the key ring."""
        return [_compute_search_digest(key, text, kind) for key in self._search_keys.values()]

    def encrypt(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret for a context such as `callback_secret:<id>`, with a random nonce."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = self._ciphers[self.current_key_name].encrypt(nonce, secret, context.encode())
        return self.current_key_prefix + nonce + ciphertext

    @property
    def current_key_prefix(self) -> bytes:
        """The prefix of values that are encrypted with the first key of the key ring."""
        name = self.current_key_name.encode()
        return bytes([len(name)]) + name

    def get_key_name(self, sealed_value: bytes) -> str:
        return sealed_value[1 : 1 + sealed_value[0]].decode(errors="replace")

    def decrypt(self, sealed_value: bytes, context: str) -> bytes:
        """Decrypt a value. Raises `EncryptionKeyError` if it was encrypted for another context."""
        if not sealed_value:
            raise EncryptionKeyError(f"{context} is empty")
        name, payload = self.get_key_name(sealed_value), sealed_value[1 + sealed_value[0] :]
        if name not in self._ciphers:
            raise EncryptionKeyError(f"the key ring has no key named {name!r}")
        try:
            nonce, ciphertext = payload[:_NONCE_BYTES], payload[_NONCE_BYTES:]
            return self._ciphers[name].decrypt(nonce, ciphertext, context.encode())
        except (InvalidTag, ValueError) as error:  # ValueError: the nonce is incomplete
            message = f"{context} was encrypted with another key or for another row"
            raise EncryptionKeyError(message) from error


def decrypt_credentials(
    encryption: Encryption, account_id: int, provider: str, base_url: str, sealed: bytes
) -> tuple[bytes, bool]:
    """Decrypt an account's credentials, and return whether they are bound to its provider and URL.

    Raises `EncryptionKeyError` if they were encrypted for a different provider or URL.
    """
    try:
        return encryption.decrypt(
            sealed, make_account_context(account_id, provider, base_url)
        ), True
    except EncryptionKeyError as error:
        try:
            return encryption.decrypt(sealed, make_legacy_account_context(account_id)), False
        except EncryptionKeyError:
            raise error from None


def load_encryption(settings: Settings) -> Encryption:
    """Load the pepper and the key ring. Raises `EncryptionKeyError` if a setting is invalid."""
    keys: dict[str, bytes] = {}
    for entry in settings.keyring.get_secret_value().split(","):
        name, _, encoded_key = entry.strip().partition(":")
        if not _KEY_NAME.fullmatch(name) or name in keys:
            raise EncryptionKeyError(
                f"key {name!r} of PAYINTENT_KEYRING needs a unique name: 1 to 32 letters, "
                "digits, _ and -"
            )
        keys[name] = _parse_key(encoded_key, f"key {name!r} of PAYINTENT_KEYRING")
    return Encryption(_parse_key(settings.pepper.get_secret_value(), "PAYINTENT_PEPPER"), keys)


def _parse_key(encoded_key: str, name: str) -> bytes:
    try:
        key = base64.b64decode(encoded_key, validate=True)
    except binascii.Error as error:
        raise EncryptionKeyError(f"{name} is not base64") from error
    if len(key) != KEY_BYTES:
        raise EncryptionKeyError(f"{name} must be {KEY_BYTES} bytes, not {len(key)}")
    return key


def _compute_search_digest(key: bytes, text: str, kind: str) -> str:
    return hmac.digest(key, f"{kind}:{text}".encode(), "sha256").hex()[:32]


def _compute_fingerprint(key: bytes) -> str:
    """Return a digest that identifies a key without revealing it."""
    return hmac.digest(key, b"payintent mark", "sha256").hex()[:16]


def make_callback_secret_context(merchant_id: int, secret_id: UUID) -> str:
    return f"callback_secret:{merchant_id}:{secret_id}"


def make_account_context(account_id: int, provider: str, base_url: str) -> str:
    return f"provider_account:2:{account_id}:{provider}:{base_url}"


def make_legacy_account_context(account_id: int) -> str:
    """Return the context that earlier releases used. `keyring rotate` replaces it."""
    return f"provider_account:{account_id}"


def make_mail_context(mail_id: UUID) -> str:
    return f"mail:{mail_id}"


def make_proposal_context(proposal_id: UUID, action: str, proposed_by: str) -> str:
    return f"proposal:{proposal_id}:{action}:{proposed_by}"
