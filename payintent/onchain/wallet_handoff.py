"""Links that open a buyer's page in a wallet's browser without revealing the checkout id.

A link has a signed code, which identifies the session and expires after a quarter of an hour.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from payintent.encryption import Encryption

VALIDITY = timedelta(minutes=15)
_ID_BYTES, _TIME_BYTES, _SIGNATURE_BYTES = 16, 5, 15  # 48 characters of base64
_CONTEXT = "wallet-handoff:"


@dataclass(frozen=True, slots=True)
class WalletHandoff:
    encryption: Encryption
    checkout_base: str

    def link(self, session_id: UUID, now: datetime) -> str | None:
        """Return the link into MetaMask's browser; None if the page has no URL."""
        _, separator, rest = self.checkout_base.partition("://")
        if not separator:
            return None
        return f"https://link.metamask.io/dapp/{rest}/wallet/open/{self.code(session_id, now)}"

    def code(self, session_id: UUID, now: datetime) -> str:
        until_s = int((now + VALIDITY).timestamp())
        payload = session_id.bytes + until_s.to_bytes(_TIME_BYTES)
        return urlsafe_b64encode(payload + self._sign(payload)).decode()

    def read(self, code: str, now: datetime) -> UUID | None:
        """Return the session of a code; None if the code is forged or has expired."""
        try:
            decoded = urlsafe_b64decode(code)
        except ValueError:
            return None
        payload, signature = decoded[:-_SIGNATURE_BYTES], decoded[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(self._sign(payload), signature):
            return None
        until_s = int.from_bytes(payload[_ID_BYTES:])
        is_valid = now.astimezone(UTC).timestamp() < until_s
        return UUID(bytes=payload[:_ID_BYTES]) if is_valid else None

    def _sign(self, payload: bytes) -> bytes:
        return self.encryption.digest(_CONTEXT + payload.hex())[:_SIGNATURE_BYTES]
