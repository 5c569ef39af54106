"""Template fields of hosted pages that depend on the payment and its session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request

from payintent.chains.store import DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER
from payintent.checkout.languages import Language
from payintent.checkout.methods.groups import Group
from payintent.checkout.steps import CardStep, DepositStep, WalletStep
from payintent.core.addresses import get_linkable_url, parse_web_origin
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import CURRENCIES, format_amount
from payintent.gateways.port import FailureReason
from payintent.merchants.model import Merchant, accepts_payments
from payintent.payments.model import Payment, PaymentStatus, Session, SessionStatus
from payintent.payments.return_urls import (
    add_return_query,
    choose_return_url,
    money_may_arrive,
)
from payintent.payments.store import PaymentSnapshot

#: Query parameters that are added to every link.
_PREFERENCES = ("lang", "country")
_PARAMETERS = (*_PREFERENCES, "embed_origin", "nonce")
_PARAMETER_CHARS_MAX = 300
#: The page redirects to the shop only if the payment was made within this time.
_RETURN_WINDOW = timedelta(minutes=5)

_FAILURE_KEYS = {
    FailureReason.DECLINED: ["failed_declined"],
    FailureReason.TX_REVERTED: ["failed_reverted"],
    FailureReason.AMOUNT_MISMATCH: ["failed_mismatch"],
    FailureReason.TOKEN_MISMATCH: ["failed_mismatch"],
    FailureReason.ONCHAIN_TIMEOUT: ["failed_timeout"],
    FailureReason.UNKNOWN: ["failed_unknown", "not_charged"],
}
#: Tones and translation keys.
UNPAID_HEADINGS = {
    PaymentStatus.FAILED: ("bad", "failed"),
    PaymentStatus.EXPIRED: ("bad", "expired"),
    PaymentStatus.CANCELLED: ("plain", "cancelled"),
}
_DEPOSIT_PROVIDERS = {DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER}
_MISMATCHES = {FailureReason.AMOUNT_MISMATCH, FailureReason.TOKEN_MISMATCH}
_PROBLEM_KEYS = {
    ErrorCode.PAYMENT_METHOD_NOT_FOUND: "problem_choose",
    ErrorCode.PG_NOT_AVAILABLE: "problem_unavailable",
    ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE: "problem_unavailable",
    ErrorCode.UNSUPPORTED_CURRENCY: "problem_unavailable",
    ErrorCode.PG_UPSTREAM_ERROR: "problem_upstream",
    ErrorCode.INVALID_CHECKOUT_STATE: "problem_detected",
    ErrorCode.RATE_LIMITED: "sorry_many",
}


@dataclass(frozen=True, slots=True)
class EmbeddingFrame:
    """The origin of the merchant's page that embeds ours, and the nonce for messages to it."""

    origin: str
    nonce: str


@dataclass(frozen=True, slots=True)
class PageUrl:
    """The URL of a hosted page, with its language, country and frame parameters."""

    checkout_id: str
    parameters: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"/c/{quote(self.checkout_id)}"

    @property
    def current(self) -> str:
        return _add_query(self.path, self.parameters)

    @property
    def without_frame(self) -> str:
        names = [name for name in _PREFERENCES if name in self.parameters]
        return _add_query(self.path, {name: self.parameters[name] for name in names})

    def subpage(self, name: str) -> str:
        return _add_query(f"{self.path}/{name}", self.parameters)


def read_page_url(request: Request, checkout_id: str) -> PageUrl:
    query = request.query_params
    parameters = {
        name: query[name]
        for name in _PARAMETERS
        if 0 < len(query.get(name, "")) <= _PARAMETER_CHARS_MAX
    }
    return PageUrl(checkout_id, parameters)


def embedding_frame(page_url: PageUrl, merchant: Merchant) -> EmbeddingFrame | None:
    """Return the embedding frame; None if its origin is not registered for the merchant."""
    origin = parse_web_origin(page_url.parameters.get("embed_origin", ""))
    if origin is None or origin not in merchant.origins:
        return None
    return EmbeddingFrame(origin, page_url.parameters.get("nonce", ""))


def _add_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


@dataclass(frozen=True, slots=True)
class PageResult:
    tone: str  # CSS class: good, bad or plain
    title: str  # translation key
    text: str
    offers_retry: bool = False  # whether the link to the shop starts another attempt


def unpaid_result(
    snapshot: PaymentSnapshot, language: Language, *, has_arrived: bool, return_link: str | None
) -> PageResult:
    """Return the result of a FAILED, EXPIRED or CANCELLED payment.

    The page does not offer another attempt if the buyer's money has arrived or may still arrive.
    """
    payment = snapshot.payment
    may_arrive = has_arrived or money_may_arrive(payment) or _is_unconfirmed(snapshot)
    offers_retry = payment.status is not PaymentStatus.CANCELLED and not may_arrive
    keys = _list_unpaid_texts(snapshot, has_arrived=has_arrived)
    if offers_retry and return_link is None:
        keys = [*keys, "again_from_shop"]
    text = reduce(
        lambda first, second: language.t("sentences", first=first, second=second),
        map(language.t, keys),
    )
    tone, title = UNPAID_HEADINGS[payment.status]
    return PageResult(tone, title, text, offers_retry=offers_retry)


def _list_unpaid_texts(snapshot: PaymentSnapshot, *, has_arrived: bool) -> list[str]:
    payment = snapshot.payment
    if has_arrived and payment.failure_reason not in _MISMATCHES:
        return ["not_accepted"]
    if payment.status is PaymentStatus.FAILED:
        return _FAILURE_KEYS[payment.failure_reason or FailureReason.UNKNOWN]
    if payment.status is PaymentStatus.EXPIRED and is_deposit(snapshot.session):
        return ["deposit_expired"]
    return ["unconfirmed" if _is_unconfirmed(snapshot) else "not_charged"]


def is_deposit(session: Session | None) -> bool:
    return session is not None and session.quote.provider in _DEPOSIT_PROVIDERS


def _is_unconfirmed(snapshot: PaymentSnapshot) -> bool:
    """Return whether a payment expired because its gateway did not respond.

    Deposits have their own message, because their addresses are still watched after the payment
    expires.
    """
    session = snapshot.session
    return (
        snapshot.payment.status is PaymentStatus.EXPIRED
        and session is not None
        and session.status is not SessionStatus.ENDED
        and not is_deposit(session)
    )


def paid_result(payment: Payment, merchant: Merchant, language: Language) -> PageResult:
    """Return the result of a payment that is paid or has a status added in a newer version."""
    t, name = language.t, merchant.name
    if payment.status is PaymentStatus.PARTIALLY_REFUNDED:
        text = t("partly_refunded_text", amount=refunded_text(payment, language))
        return PageResult("good", "partly_refunded", text)
    results = {
        PaymentStatus.PAID: PageResult("good", "paid", t("paid_thanks", merchant=name)),
        PaymentStatus.REFUNDED: PageResult("plain", "refunded", t("refunded_text")),
    }
    unknown = PageResult("plain", "unknown_state", t("unknown_state_text"))
    return results.get(payment.status, unknown)


def refunded_text(payment: Payment, language: Language) -> str:
    currency = CURRENCIES[payment.currency]
    amount = format_amount(
        payment.refunded_amount, currency.amount_decimals, trim=currency.is_crypto
    )
    return language.money(amount, payment.currency)


def problem_text(
    refusal: RefusedError | None, view: Mapping[str, Any], merchant: Merchant, language: Language
) -> str | None:
    """Return an error message for the buyer; None if the page already explains the problem.

    The page shows the result of an ended payment. If the merchant does not accept payments, the
    page shows a note instead of the payment methods.
    """
    if refusal is None or not view["can"]["select"]:
        return None
    is_closed = not accepts_payments(merchant.activation)
    if is_closed and refusal.code is ErrorCode.PG_NOT_AVAILABLE:
        return None
    if refusal.code is ErrorCode.CONFLICT:
        return language.t("problem_busy" if refusal.retry_after_s else "problem_total")
    if is_about_email(refusal):
        return language.t("problem_email")
    return language.t(_PROBLEM_KEYS.get(refusal.code, "problem_other"))


def is_about_email(refusal: RefusedError | None) -> bool:
    return refusal is not None and refusal.message.startswith("payer_email")


def list_totals(quotes: Sequence[Mapping[str, Any]], language: Language) -> list[str]:
    """Return the methods' distinct totals. The button shows the selected method's total."""
    return list(
        dict.fromkeys(language.money(quote["total_amount"], quote["currency"]) for quote in quotes)
    )


def preselected_method(groups: Sequence[Group], form: Mapping[str, str] | None) -> str:
    """Return the submitted choice, or the first choice on the page if no form was submitted."""
    values = [
        choice.value for group in groups for option in group.options for choice in option.choices
    ]
    if form is None:
        return values[0] if values else ""
    method = form.get("method", "")
    return next((value for value in values if method.startswith(f"{value}|")), "")


def next_step(
    action: Mapping[str, Any],
    wallet: WalletStep | None,
    card: CardStep | None,
    embed: EmbeddingFrame | None,
) -> dict[str, Any]:
    """Return the buyer's next step for the templates.

    Wallets do not work in frames, so an embedded page offers to open outside the frame.
    """
    if isinstance(wallet, DepositStep):
        return {"kind": "deposit"}
    if wallet and embed:
        return {"kind": "leave_frame"}
    if wallet:
        return {"kind": "wallet"}
    if card:
        return {"kind": "card"}
    if action["type"] == "redirect" and get_linkable_url(action["redirect"]["url"]):
        redirect: dict[str, Any] = action["redirect"]
        step: dict[str, Any] = {"kind": "redirect", "method": "GET", "fields": {}}
        return step | redirect
    return {"kind": "wait"}


def make_return_link(snapshot: PaymentSnapshot, merchant: Merchant) -> str | None:
    """Return the link back to the shop, with the payment's id and status in its query."""
    payment, session = snapshot.payment, snapshot.session
    url = choose_return_url(payment, session and session.return_url, merchant)
    return url and add_return_query(url, payment)


def returns_to_shop(snapshot: PaymentSnapshot) -> bool:
    """Return whether the buyer paid recently enough to be redirected to the shop."""
    payment = snapshot.payment
    if payment.status is not PaymentStatus.PAID or payment.paid_at is None:
        return False
    return snapshot.now - payment.paid_at < _RETURN_WINDOW
