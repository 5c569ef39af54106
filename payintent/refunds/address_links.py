"""Links to the page where a buyer enters the address for a refund."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from uuid import UUID

from payintent.runtime.encryption import Encryption

_ID_BYTES, _SIGNATURE_BYTES = 16, 17  # 44 base64 characters
_CONTEXT = "refund-address:"


@dataclass(frozen=True, slots=True)
class RefundAddressLinks:
    """Creates and reads links. Anyone who has a refund's link can enter the address."""

    encryption: Encryption
    checkout_base: str

    def build_url(self, refund_id: UUID) -> str:
        """Return the refund's link; it is relative if the checkout has no URL of its own."""
        return f"{self.checkout_base or '/c'}/refund/{self.create_code(refund_id)}"

    def create_code(self, refund_id: UUID) -> str:
        return urlsafe_b64encode(refund_id.bytes + self._compute_signature(refund_id)).decode()

    def parse_code(self, code: str) -> UUID | None:
        """Return the refund's id; None if the code is invalid."""
        try:
            data = urlsafe_b64decode(code)
        except ValueError:
            return None
        if len(data) != _ID_BYTES + _SIGNATURE_BYTES:
            return None
        refund_id = UUID(bytes=data[:_ID_BYTES])
        is_valid = hmac.compare_digest(self._compute_signature(refund_id), data[_ID_BYTES:])
        return refund_id if is_valid else None

    def _compute_signature(self, refund_id: UUID) -> bytes:
        return self.encryption.digest(_CONTEXT + refund_id.hex)[:_SIGNATURE_BYTES]
