"""Select or change a payment's method; the payment becomes PROCESSING.

A selection stores the session as `opening`, calls the gateway and applies its response. No
transaction is open during the gateway call. If the process dies before the response is applied, the
session inquirer finds the stored session and queries the gateway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlencode

import msgspec

from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, ErrorCode, RefusedError
from payintent.core.method_brands import match_brand
from payintent.core.money import is_plain_decimal
from payintent.core.texts import check_email, check_text
from payintent.db.database import Database
from payintent.db.sealing import find_order_id
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.calls import GatewayRequestKind
from payintent.gateway_accounts.health import GatewayChannel
from payintent.gateways.port import (
    GatewaySessionRequest,
    GatewaySessionState,
    OutcomeUnknown,
    SessionCreated,
)
from payintent.mail.message import to_mailbox
from payintent.merchants.model import Merchant, PaymentMethod, Quote, accepts_payments
from payintent.merchants.payable import Restrictions, find_payable_methods
from payintent.payment_sessions.inquire import make_buyer_call, make_session_call
from payintent.payment_sessions.open_session import (
    CreateSessionResult,
    NewSelection,
    SelectedSession,
    SessionOpener,
)
from payintent.payment_sessions.settle import settle_session
from payintent.payments.expire import require_open, require_open_checkout
from payintent.payments.model import Payment, PaymentStatus, Session, SessionStatus
from payintent.payments.return_urls import find_return_url, require_return_origin
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.merchant_cache import MerchantCache, MerchantSetup
from payintent.quotes.model import require_currency_in_country, resolve_quote_country
from payintent.quotes.offers import (
    MethodOffer,
    QuoteRefusal,
    RefusalKind,
    judge_methods,
    make_terms,
)
from payintent.runtime.log import get_logger

_log = get_logger("select_quote")


_LOCALE_MAX = 35
_URL_MAX = 2_048
_METHOD_ID_MAX = 2**63 - 1


class QuoteSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /checkout/{checkout_id}/quotes`."""

    payment_method_id: int
    currency: str | None = None
    country: str | None = None
    payer_email: str | None = None
    locale: str | None = None
    return_url: str | None = None
    expected_total_amount: str | None = None

    def check(self) -> None:
        """Raise `PAYMENT_METHOD_NOT_FOUND` or `BAD_REQUEST` if a value is malformed."""
        if not 0 <= self.payment_method_id <= _METHOD_ID_MAX:
            raise RefusedError(ErrorCode.PAYMENT_METHOD_NOT_FOUND, "no such payment method")
        check_email(self.payer_email)
        check_text("locale", self.locale, _LOCALE_MAX)
        check_text("return_url", self.return_url, _URL_MAX)
        if self.expected_total_amount is not None and not is_plain_decimal(
            self.expected_total_amount
        ):
            raise BadRequestError("expected_total_amount must be a plain decimal string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUrls:
    """Public base URLs of this installation."""

    api_base: str
    checkout_base: str
    pages_base: str  # of checkout pages; set even if payments have no `checkout_url`


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionContext:
    database: Database
    merchants: MerchantCache
    accounts: GatewayAccounts
    opener: SessionOpener
    urls: ServiceUrls


async def select_quote(
    context: SelectionContext,
    snapshot: PaymentSnapshot,
    selection: QuoteSelection,
    restrictions: Restrictions,
    viewer_country: str | None = None,
) -> SelectedSession:
    """Freeze a quote and open its session at the gateway. Call `selection.check` first.

    Raises `CHECKOUT_EXPIRED`, `INVALID_CHECKOUT_STATE` (the payment has ended, or the current
    method has received money), `PAYMENT_METHOD_NOT_FOUND`, `PG_NOT_AVAILABLE`, `UNSUPPORTED_…`,
    `CONFLICT` (another selection is in progress, or the total has changed), `PG_UPSTREAM_ERROR`,
    `RATE_LIMITED` (too many selections for this payment, or too many calls to this account).
    """
    accounts, opener = context.accounts, context.opener
    await require_open_checkout(context.database, snapshot)
    setup = await context.merchants.get(snapshot.payment.merchant_id)
    merchant = setup.merchant
    methods = setup.get_methods_during_outage(await accounts.get_unavailable_ids())
    quote = _quote_selection(
        setup, methods, snapshot.payment, selection, restrictions, viewer_country
    )
    require_return_origin("return_url", selection.return_url, merchant.return_origins)
    if await accounts.connect(quote.account_id, quote.provider) is None:
        raise _make_unavailable_error()
    await opener.check_selection_limit(snapshot.payment, snapshot.now)
    await _inquire_current_session(context, snapshot)
    payment = snapshot.payment
    async with accounts.buyer_calls.enter(make_buyer_call(payment.merchant_id, payment.id, quote)):
        if not await accounts.health.allows_request(quote.account_id, GatewayChannel.SESSIONS):
            raise _make_unavailable_error()
        session = await opener.store(
            NewSelection(snapshot.payment.id, quote, selection.return_url, selection.payer_email)
        )
        request = _build_request(context, merchant, snapshot.payment, session, selection)
        result = await accounts.call(
            make_session_call(session, GatewayRequestKind.CREATE_SESSION),
            lambda gateway, account: gateway.create_session(account, request),
        )
    selected_session = await opener.apply_response(session, result)
    _require_current_session(selected_session, result)
    return selected_session


def _quote_selection(
    setup: MerchantSetup,
    methods: Sequence[PaymentMethod],
    payment: Payment,
    selection: QuoteSelection,
    restrictions: Restrictions,
    viewer_country: str | None,
) -> Quote:
    """Price the selected method exactly as `GET /quotes` does."""
    merchant = setup.merchant
    method = next((method for method in methods if method.id == selection.payment_method_id), None)
    if method is None or not method.enabled:
        raise RefusedError(ErrorCode.PAYMENT_METHOD_NOT_FOUND, "no such payment method")
    if not method.account_enabled or not accepts_payments(merchant.activation):
        raise _make_unavailable_error()
    quote_country = resolve_quote_country(
        payment,
        merchant,
        find_payable_methods(merchant.market, methods),
        selection.country,
        viewer_country,
        restrictions,
    )
    require_currency_in_country(payment, quote_country.country, selection.currency)
    terms = make_terms(payment, merchant, setup.tax_rates, selection.currency)
    offers = list(judge_methods(terms, [method], quote_country))
    quotes = [offer.result for offer in offers if isinstance(offer.result, Quote)]
    if not quotes:
        raise _make_no_price_error(offers, quote_country.country)
    expected_total = selection.expected_total_amount
    total = quotes[0].price.total_amount
    if expected_total is not None and Decimal(expected_total) != Decimal(total):
        raise ConflictError(f"the total has changed to {total}")
    return quotes[0]


#: Refusals that are reported to buyers with their reason. Others become `UNSUPPORTED_CURRENCY`.
_ERROR_CODES: Mapping[RefusalKind, ErrorCode] = {
    RefusalKind.TOKEN_UNAVAILABLE: ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE,
    RefusalKind.PRECISION: ErrorCode.INVALID_AMOUNT,
    RefusalKind.AMOUNT_LIMIT: ErrorCode.INVALID_AMOUNT,
}


def _make_no_price_error(offers: Sequence[MethodOffer], country: str) -> RefusedError:
    for offer in offers:
        refusal = offer.result
        if isinstance(refusal, QuoteRefusal) and refusal.kind in _ERROR_CODES:
            return RefusedError(_ERROR_CODES[refusal.kind], refusal.reason)
    return RefusedError(
        ErrorCode.UNSUPPORTED_CURRENCY,
        f"this payment method cannot be used for this payment in {country}",
    )


def _make_unavailable_error() -> RefusedError:
    return RefusedError(ErrorCode.PG_NOT_AVAILABLE, "this payment method is currently unavailable")


async def _inquire_current_session(context: SelectionContext, snapshot: PaymentSnapshot) -> None:
    """Inquire about the current session before it is replaced, because it may have been paid.

    During an outage, the buyer does not wait for the gateway's timeout to select another method.
    """
    session = snapshot.session
    if session is None or session.status is not SessionStatus.OPEN:
        return
    health = context.accounts.health
    if not await health.allows_request(session.quote.account_id, GatewayChannel.SESSIONS):
        return
    call = make_buyer_call(snapshot.payment.merchant_id, snapshot.payment.id, session.quote)
    async with context.accounts.buyer_calls.enter(call):
        report = await context.accounts.call(
            make_session_call(session, GatewayRequestKind.INQUIRE),
            lambda gateway, account: gateway.inquire(account, session.gateway_ref),
        )
    if isinstance(report, OutcomeUnknown):
        return  # the inquiry loop closes the session; money that it still receives opens a case
    if report.state is GatewaySessionState.AUTHORISING:
        raise RefusedError(
            ErrorCode.INVALID_CHECKOUT_STATE, "a payment is in progress; wait for its result"
        )
    async with context.database.transaction() as tx:
        payment = await settle_session(tx, snapshot.payment.id, session.id, report)
    if payment.status is PaymentStatus.PAID:
        raise RefusedError(ErrorCode.INVALID_CHECKOUT_STATE, "the payment has been received")
    require_open(payment, snapshot.now)


def _build_request(
    context: SelectionContext,
    merchant: Merchant,
    payment: Payment,
    session: Session,
    selection: QuoteSelection,
) -> GatewaySessionRequest:
    urls = context.urls
    query = f"?{urlencode({'lang': selection.locale})}" if selection.locale else ""
    page_url = f"{urls.checkout_base}/{payment.checkout_id}/return{query}"
    merchant_url = find_return_url(payment, selection.return_url, merchant) or ""
    quote = session.quote
    brand = match_brand(quote.label)
    return GatewaySessionRequest(
        session_id=session.id,
        amount_minor=quote.total_minor,
        currency=quote.price.currency,
        kind=quote.kind,
        brand=brand.code if brand else None,
        country=quote.country,
        description=f"{merchant.name} {ids.format_id(ids.PAYMENT, payment.id)}",
        opened_at=session.opened_at,
        expires_at=payment.expires_at,
        return_url=page_url if urls.checkout_base else merchant_url,
        callback_url=f"{urls.api_base}/callbacks/{quote.provider}/{quote.account_id}",
        locale=selection.locale,
        payer_email=_to_gateway_email(selection.payer_email or payment.payer_email),
        payment_id=payment.id,
        order_id=find_order_id(payment.metadata),
    )


def _to_gateway_email(email: str | None) -> str | None:
    """Return the address as an ASCII mailbox, which every gateway accepts, or None."""
    mailbox = to_mailbox(email) if email is not None else None
    return mailbox if mailbox is not None and mailbox.isascii() else None


def _require_current_session(
    selected_session: SelectedSession, result: CreateSessionResult
) -> None:
    payment, session = selected_session.payment, selected_session.session
    if payment.session_id == session.id:
        return
    if isinstance(result, SessionCreated):
        require_open(payment, selected_session.now)
        raise RefusedError(
            ErrorCode.CONFLICT,
            "another payment method was selected at the same time",
            retry_after_s=1,
        )
    _log.warning(
        "provider_failed",
        provider=session.quote.provider,
        account=session.quote.account_id,
        session=ids.format_id(ids.SESSION, session.id),
        why=result.detail,
    )
    raise RefusedError(
        ErrorCode.PG_UPSTREAM_ERROR, "the payment provider rejected the request or did not respond"
    )
