"""The stores, use cases and settings of the hosted checkout."""

from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request

from payintent.api.application import require_state
from payintent.api.rate_limits import AddressRateLimiter
from payintent.api.viewer import ViewerReader
from payintent.config import Settings
from payintent.onchain.wallet_handoff import WalletHandoff
from payintent.payments.buyer_simulator import BuyerSimulator
from payintent.payments.change_feed import ChangeFeed
from payintent.payments.fraud_screening import FraudScreening
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.lookup import PaymentLookup
from payintent.payments.merchant_cache import MerchantCache
from payintent.payments.policy_cache import PolicyCache
from payintent.payments.select_quote import SelectionContext, ServiceUrls
from payintent.pictures.cache import PictureCache
from payintent.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutContext:
    settings: Settings
    database: Database
    urls: ServiceUrls
    accounts: GatewayAccounts
    merchants: MerchantCache
    policies: PolicyCache
    payment_lookup: PaymentLookup
    fraud_screening: FraudScreening
    selection_context: SelectionContext
    wallet_handoff: WalletHandoff
    buyer_simulator: BuyerSimulator
    pictures: PictureCache
    viewers: ViewerReader
    addresses: AddressRateLimiter
    change_feed: ChangeFeed[UUID]  # of payments, for open event streams


def get_checkout_context(request: Request) -> CheckoutContext:
    return require_state(request, "checkout")
