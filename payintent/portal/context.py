"""The dependencies of the merchant portal's request handlers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from payintent.db.database import Database
from payintent.db.replica import ReadDatabase
from payintent.fraud.policy_cache import PolicyCache
from payintent.http.address_limits import AuthenticationAttempts
from payintent.http.application import require_state
from payintent.http.exports import ExportSlots
from payintent.merchants.access import MerchantDirectory
from payintent.merchants.limits import MerchantRateLimiter
from payintent.operators.operation import OperationContext
from payintent.payments.lookup import PaymentLookup
from payintent.quotes.merchant_cache import MerchantCache
from payintent.refunds.create import RefundCreator
from payintent.runtime.encryption import Encryption
from payintent.runtime.settings import Settings
from payintent.test_mode.trigger_event import EventTrigger

if TYPE_CHECKING:
    from payintent.portal.passkeys import PasskeyVerifier


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalContext:
    settings: Settings
    database: Database
    read_database: ReadDatabase  # for lists; may lag by a few seconds
    encryption: Encryption
    merchants: MerchantCache
    merchant_directory: MerchantDirectory
    policies: PolicyCache
    payment_lookup: PaymentLookup
    refund_creator: RefundCreator
    operation_context: OperationContext
    attempts: AuthenticationAttempts
    limiter: MerchantRateLimiter
    event_trigger: EventTrigger
    exports: ExportSlots

    def open_passkey_verifier(self) -> "PasskeyVerifier":
        # Imported here because most processes do not need fido2.
        from payintent.portal.passkeys import PasskeyVerifier

        return PasskeyVerifier(self.settings.portal_address)


def get_portal_context(request: Request) -> PortalContext:
    return require_state(request, "portal")
