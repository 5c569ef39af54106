"""The stores, use cases and settings of the merchant portal."""

from dataclasses import dataclass

from starlette.requests import Request

from payintent.api.application import require_state
from payintent.api.authentication_failures import Attempts
from payintent.config import Settings
from payintent.encryption import Encryption
from payintent.operations.base import OperationContext
from payintent.payments.create_refund import RefundCreator
from payintent.payments.lookup import PaymentLookup
from payintent.payments.merchant_cache import MerchantCache
from payintent.payments.policy_cache import PolicyCache
from payintent.storage.database import Database
from payintent.storage.replica import ReadDatabase


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalContext:
    settings: Settings
    database: Database
    reading: ReadDatabase  # for lists, which may be a few seconds old
    encryption: Encryption
    merchants: MerchantCache
    policies: PolicyCache
    payment_lookup: PaymentLookup
    refund_creator: RefundCreator
    operation_context: OperationContext
    attempts: Attempts


def get_portal_context(request: Request) -> PortalContext:
    return require_state(request, "portal")
