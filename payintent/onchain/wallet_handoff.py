"""Takes a buyer's page into a wallet's own browser, without telling its maker the checkout id.

The link carries a code that is signed, names the session and lasts a quarter of an hour.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from payintent.encryption import Encryption

LASTS = timedelta(minutes=15)
_ID_BYTES, _TIME_BYTES, _MARK_BYTES = 16, 5, 15  # 48 characters of base64
_CONTEXT = "wallet-handoff:"


@dataclass(frozen=True, slots=True)
class WalletHandoff:
    """Makes and reads the codes of links into wallets' browsers."""

    encryption: Encryption
    checkout_base: str

    def link(self, session_id: UUID, now: datetime) -> str | None:
        """Return the link into MetaMask's browser; None without an address of the page."""
        _, separator, rest = self.checkout_base.partition("://")
        if not separator:
            return None
        return f"https://link.metamask.io/dapp/{rest}/wallet/open/{self.code(session_id, now)}"

    def code(self, session_id: UUID, now: datetime) -> str:
        """Return a code that names a session for a while."""
        until_s = int((now + LASTS).timestamp())
        named = session_id.bytes + until_s.to_bytes(_TIME_BYTES)
        return urlsafe_b64encode(named + self._mark(named)).decode()

    def read(self, code: str, now: datetime) -> UUID | None:
        """Return the session that a code names; None for one that is not ours, or too old."""
        try:
            decoded = urlsafe_b64decode(code)
        except ValueError:
            return None
        named, mark = decoded[:-_MARK_BYTES], decoded[-_MARK_BYTES:]
        if not hmac.compare_digest(self._mark(named), mark):
            return None
        until_s = int.from_bytes(named[_ID_BYTES:])
        return UUID(bytes=named[:_ID_BYTES]) if now.astimezone(UTC).timestamp() < until_s else None

    def _mark(self, named: bytes) -> bytes:
        return self.encryption.digest(_CONTEXT + named.hex())[:_MARK_BYTES]
