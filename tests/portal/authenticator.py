"""A security key in memory that creates passkeys and signs challenges."""

import base64
import json
import secrets
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class SecurityKey:
    """A passkey for an origin. Tests can make its responses invalid."""

    def __init__(self, origin: str = "http://pay.test") -> None:
        self.origin = origin
        self.rp_id = urlsplit(origin).hostname or ""
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.credential_id = secrets.token_bytes(32)
        self.user = b""
        self.count = 0
        self.flags = PRESENT | VERIFIED

    def register(self, options: dict[str, Any], **changes: Any) -> str:
        """Return the response of `navigator.credentials.create`."""
        self.user = base64.urlsafe_b64decode(options["user"]["id"] + "==")
        cose = cbor.encode(ES256.from_cryptography_key(self.key.public_key()))
        credential = bytes(16) + len(self.credential_id).to_bytes(2, "big")
        credential += self.credential_id + cose
        data = self._data(ATTESTED) + credential
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", options["challenge"], changes)
        response = {"clientDataJSON": b64(client), "attestationObject": b64(attestation)}
        return self._answer(response)

    def sign_in(self, options: dict[str, Any], **changes: Any) -> str:
        """Return the response of `navigator.credentials.get`."""
        data = self._data()
        client = self._client("webauthn.get", options["challenge"], changes)
        signed = self.key.sign(data + sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": b64(client),
            "authenticatorData": b64(data),
            "signature": b64(signed),
            "userHandle": b64(self.user),
        }
        return self._answer(response)

    def _data(self, flags: int = 0) -> bytes:
        head = sha256(self.rp_id.encode()).digest() + bytes([self.flags | flags])
        return head + self.count.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str, changes: dict[str, Any]) -> bytes:
        fields = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps(fields | {"crossOrigin": False} | changes).encode()

    def _answer(self, response: dict[str, str]) -> str:
        credential_id = b64(self.credential_id)
        return json.dumps(
            {
                "id": credential_id,
                "rawId": credential_id,
                "type": "public-key",
                "response": response,
                "clientExtensionResults": {},
                "authenticatorAttachment": "platform",
            }
        )
