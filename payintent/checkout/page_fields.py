"""The fields of a page of the hosted checkout, from the payment and its session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request

from payintent.checkout.card_step import CardStep
from payintent.checkout.languages import Language
from payintent.checkout.wallet_step import WalletStep
from payintent.domain.activation import is_in_service
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.merchant import Merchant
from payintent.domain.money import format_amount
from payintent.domain.payment import FailureReason, Payment, PaymentStatus
from payintent.domain.web_origin import web_origin, web_url
from payintent.storage.payments import PaymentSnapshot

#: Query parameters that stay in the address from one page to the next.
_SAID = ("lang", "country")
_KEPT = (*_SAID, "embed_origin", "nonce")
_KEPT_CHARS_MAX = 300
#: Only a payment that was paid within this time leads back to the shop by itself.
_TAKEN_BACK_WITHIN = timedelta(minutes=5)

_FAILED = {
    FailureReason.DECLINED: "failed_declined",
    FailureReason.TX_REVERTED: "failed_reverted",
    FailureReason.AMOUNT_MISMATCH: "failed_mismatch",
    FailureReason.TOKEN_MISMATCH: "failed_mismatch",
    FailureReason.ONCHAIN_TIMEOUT: "failed_timeout",
    FailureReason.UNKNOWN: "failed_unknown",
}
_PROBLEMS = {
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
    """The merchant's frame around the page: its origin, and the nonce of its messages."""

    origin: str
    nonce: str


@dataclass(frozen=True, slots=True)
class PageUrl:
    """The address of this page, with the parameters it keeps: language, country, frame."""

    checkout_id: str
    kept: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"/c/{quote(self.checkout_id)}"

    @property
    def current(self) -> str:
        return _with(self.path, self.kept)

    @property
    def top(self) -> str:
        return _with(self.path, {name: self.kept[name] for name in _SAID if name in self.kept})

    def link(self, name: str) -> str:
        return _with(f"{self.path}/{name}", self.kept)


def read_page_url(request: Request, checkout_id: str) -> PageUrl:
    query = request.query_params
    kept = {name: query[name] for name in _KEPT if 0 < len(query.get(name, "")) <= _KEPT_CHARS_MAX}
    return PageUrl(checkout_id, kept)


def embedding_frame(address: PageUrl, merchant: Merchant) -> EmbeddingFrame | None:
    """Return the frame the page is in; None for an origin the merchant has not registered."""
    origin = web_origin(address.kept.get("embed_origin", ""))
    if origin is None or origin not in merchant.origins:
        return None
    return EmbeddingFrame(origin, address.kept.get("nonce", ""))


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


@dataclass(frozen=True, slots=True)
class PageResult:
    mood: str
    title: str  # a text's key
    text: str


def page_result(payment: Payment, merchant: Merchant, texts: Language) -> PageResult:
    t, name = texts.t, merchant.name
    if payment.status is PaymentStatus.FAILED:
        reason = _FAILED.get(payment.failure_reason or FailureReason.UNKNOWN, "failed_unknown")
        return PageResult(
            "bad", "failed", t("sentences", first=t(reason), second=t("again_from_shop"))
        )
    if payment.status is PaymentStatus.PARTIALLY_REFUNDED:
        return PageResult(
            "good",
            "partly_refunded",
            t("partly_refunded_text", amount=refunded_text(payment, texts)),
        )
    results = {
        PaymentStatus.PAID: PageResult("good", "paid", t("paid_thanks", merchant=name)),
        PaymentStatus.REFUNDED: PageResult("plain", "refunded", t("refunded_text")),
        PaymentStatus.EXPIRED: PageResult("bad", "expired", t("expired_text")),
        PaymentStatus.CANCELLED: PageResult("plain", "cancelled", t("cancelled_text")),
    }
    unknown = PageResult("plain", "unknown_state", t("unknown_state_text"))
    return results.get(payment.status, unknown)


def refunded_text(payment: Payment, texts: Language) -> str:
    currency = CURRENCIES[payment.currency]
    amount = format_amount(payment.refunded_amount, currency.amount_decimals, trim=currency.crypto)
    return texts.money(amount, payment.currency)


def problem_text(
    refused: RefusedError | None, view: Mapping[str, Any], merchant: Merchant, texts: Language
) -> str | None:
    """Return the text of a refusal for the buyer; none of what the page says already.

    What is over says so itself, and no new try would help. That the merchant is out of service, the
    page says in place of its methods.
    """
    if refused is None or not view["can"]["select"]:
        return None
    is_closed = not is_in_service(merchant.activation)
    if is_closed and refused.code is ErrorCode.PG_NOT_AVAILABLE:
        return None
    if refused.code is ErrorCode.CONFLICT:
        return texts.t("problem_busy" if refused.retry_after_s else "problem_total")
    if is_about_email(refused):
        return texts.t("problem_email")
    return texts.t(_PROBLEMS.get(refused.code, "problem_other"))


def is_about_email(refused: RefusedError | None) -> bool:
    return refused is not None and refused.message.startswith("payer_email")


def preselected_method(
    offered: Sequence[Mapping[str, Any]], typed: Mapping[str, str] | None
) -> str:
    """Return the preselected method: the buyer's last choice, at first the first one."""
    choices = [f"{quote['payment_method_id']}|{quote['currency']}" for quote in offered]
    if typed is None:
        return choices[0] if choices else ""
    method = typed.get("method", "")
    return next((choice for choice in choices if method.startswith(f"{choice}|")), "")


def next_step(
    action: Mapping[str, Any],
    wallet: WalletStep | None,
    card: CardStep | None,
    embed: EmbeddingFrame | None,
) -> dict[str, Any]:
    """Return the buyer's next step, as the templates distinguish them.

    Wallets do not work in frames: there the step leads to the page outside of the frame.
    """
    if wallet and embed:
        return {"kind": "out"}
    if wallet:
        return {"kind": "wallet"}
    if card:
        return {"kind": "card"}
    if action["type"] == "redirect" and web_url(action["redirect"]["url"]):
        redirect: dict[str, Any] = action["redirect"]
        step: dict[str, Any] = {"kind": "redirect", "method": "GET", "fields": {}}
        return step | redirect
    return {"kind": "wait"}


def return_link(view: Mapping[str, Any]) -> str | None:
    """Return the link back to the shop, with the payment's ids; the shop must ask the API."""
    url: str | None = view.get("return_url")
    if url is None:
        return None
    hints = urlencode({name: view[name] for name in ("checkout_id", "payment_id", "status")})
    parts = urlsplit(url)
    return parts._replace(query=f"{parts.query}&{hints}" if parts.query else hints).geturl()


def returns_to_shop(snapshot: PaymentSnapshot) -> bool:
    """Tell whether the buyer has just paid, and so may be led back to the shop."""
    payment = snapshot.payment
    if payment.status is not PaymentStatus.PAID or payment.paid_at is None:
        return False
    return snapshot.now - payment.paid_at < _TAKEN_BACK_WITHIN
