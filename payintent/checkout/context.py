"""The dependencies of the hosted checkout's request handlers."""

from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request

from payintent.checkout.pictures.cache import PictureCache
from payintent.db.database import Database
from payintent.db.notify import ChangeFeed
from payintent.fraud.policy_cache import PolicyCache
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.http.application import require_state
from payintent.http.viewer import ViewerReader
from payintent.merchants.limits import AddressRateLimiter
from payintent.onchain.wallet_sessions import WalletHandoff
from payintent.payment_links.open_payment import LinkPayments
from payintent.payment_sessions.select_quote import SelectionContext, ServiceUrls
from payintent.payments.lookup import PaymentLookup
from payintent.payments.method_usage import MethodUsage
from payintent.payments.screen import FraudScreening
from payintent.quotes.merchant_cache import MerchantCache
from payintent.refunds.address_links import RefundAddressLinks
from payintent.runtime.settings import Settings
from payintent.test_mode.buyer_simulator import BuyerSimulator


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutContext:
    settings: Settings
    database: Database
    urls: ServiceUrls
    accounts: GatewayAccounts
    merchants: MerchantCache
    method_usage: MethodUsage
    policies: PolicyCache
    payment_lookup: PaymentLookup
    fraud_screening: FraudScreening
    selection_context: SelectionContext
    wallet_handoff: WalletHandoff
    refund_address_links: RefundAddressLinks
    link_payments: LinkPayments
    buyer_simulator: BuyerSimulator
    pictures: PictureCache
    viewers: ViewerReader
    address_limiter: AddressRateLimiter
    change_feed: ChangeFeed[UUID]  # notifies open event streams of payment changes


def get_checkout_context(request: Request) -> CheckoutContext:
    return require_state(request, "checkout")
