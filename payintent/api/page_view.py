"""What a page of the hosted checkout shows, from what is known of the payment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request

from payintent.api.card_step import CardStep
from payintent.api.texts import Texts
from payintent.api.wallet_step import WalletStep
from payintent.domain.errors import Code, Refused
from payintent.domain.market import CURRENCIES
from payintent.domain.merchant import Merchant
from payintent.domain.money import format_amount
from payintent.domain.payment import FailureReason, Payment, Status
from payintent.lifecycle.select_quote import origin

#: What stays in the address from one page to the next.
_KEPT = ("lang", "country", "embed_origin", "nonce")
_KEPT_CHARS_MAX = 300
_WORDS = ("minutes_left", "minute_left", "time_left", "time_over", "offline", "copied")

_FAILED = {
    FailureReason.DECLINED: "failed_declined",
    FailureReason.TX_REVERTED: "failed_reverted",
    FailureReason.AMOUNT_MISMATCH: "failed_mismatch",
    FailureReason.TOKEN_MISMATCH: "failed_mismatch",
    FailureReason.ONCHAIN_TIMEOUT: "failed_timeout",
    FailureReason.UNKNOWN: "failed_unknown",
}
_PROBLEMS = {
    Code.PAYMENT_METHOD_NOT_FOUND: "problem_choose",
    Code.PG_NOT_AVAILABLE: "problem_unavailable",
    Code.PAYMENT_TOKEN_NOT_AVAILABLE: "problem_unavailable",
    Code.UNSUPPORTED_CURRENCY: "problem_unavailable",
    Code.PG_UPSTREAM_ERROR: "problem_upstream",
    Code.INVALID_CHECKOUT_STATE: "problem_detected",
    Code.BAD_REQUEST: "problem_email",
}


@dataclass(frozen=True, slots=True)
class Embed:
    """The page in a frame of the merchant's: whom it may talk to, and by which word."""

    origin: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where this page is, with what it keeps: language, country, and the frame around it."""

    checkout_id: str
    kept: Mapping[str, str]

    @property
    def here(self) -> str:
        """Give the page itself."""
        return self._with(f"/c/{self.checkout_id}")

    def link(self, name: str) -> str:
        """Give one of the page's own addresses, such as `select` or `receipt`."""
        return self._with(f"/c/{self.checkout_id}/{name}")

    def _with(self, path: str) -> str:
        return f"{path}?{urlencode(self.kept)}" if self.kept else path


def address_of(request: Request, checkout_id: str) -> Address:
    """Read what the address keeps."""
    query = request.query_params
    kept = {name: query[name] for name in _KEPT if 0 < len(query.get(name, "")) <= _KEPT_CHARS_MAX}
    return Address(checkout_id, kept)


def embed_of(address: Address, merchant: Merchant) -> Embed | None:
    """Tell in whose frame the page is; an origin that the merchant has not registered is nobody."""
    asked = address.kept.get("embed_origin", "")
    if not asked or asked not in merchant.allowed_origins:
        return None
    return Embed(asked, address.kept.get("nonce", ""))


@dataclass(frozen=True, slots=True)
class Result:
    """How a payment ended, in words."""

    mood: str
    title: str  # a key
    text: str


def result_of(payment: Payment, merchant: Merchant, texts: Texts) -> Result:
    """Word the end of a payment; a state that nobody knows is told as one."""
    t, name = texts.t, merchant.name
    if payment.status is Status.FAILED:
        reason = _FAILED.get(payment.failure_reason or FailureReason.UNKNOWN, "failed_unknown")
        return Result("bad", "failed", t("sentences", first=t(reason), second=t("again_from_shop")))
    if payment.status is Status.PARTIALLY_REFUNDED:
        return Result(
            "good", "partly_refunded", t("partly_refunded_text", amount=refunded(payment, texts))
        )
    known = {
        Status.PAID: Result("good", "paid", t("paid_thanks", merchant=name)),
        Status.REFUNDED: Result("plain", "refunded", t("refunded_text")),
        Status.EXPIRED: Result("bad", "expired", t("expired_text")),
        Status.CANCELLED: Result("plain", "cancelled", t("cancelled_text")),
    }
    unknown = Result("plain", "unknown_state", t("unknown_state_text"))
    return known.get(payment.status, unknown)


def refunded(payment: Payment, texts: Texts) -> str:
    """Write what was given back."""
    currency = CURRENCIES[payment.currency]
    amount = format_amount(payment.refunded_amount, currency.amount_decimals, trim=currency.crypto)
    return texts.money(amount, payment.currency)


def problem_of(refused: Refused, texts: Texts) -> str:
    """Word a refusal for a buyer."""
    if refused.code is Code.CONFLICT:
        return texts.t("problem_busy" if refused.retry_after_s else "problem_total")
    return texts.t(_PROBLEMS.get(refused.code, "problem_other"))


def step_of(
    action: Mapping[str, Any], wallet: WalletStep | None, card: CardStep | None
) -> dict[str, Any]:
    """Say what the buyer does now, as the templates tell the ways apart."""
    if wallet:
        return {"kind": "wallet"}
    if card:
        return {"kind": "card"}
    if action["type"] == "redirect":
        redirect: dict[str, Any] = action["redirect"]
        known: dict[str, Any] = {"kind": "redirect", "method": "GET", "fields": {}}
        return known | redirect
    if action["type"] == "display_qr":
        shown = action["display_qr"]
        return {"kind": "qr", "image": shown["image_svg_url"], "data": shown["data"]}
    return {"kind": "wait"}


def back_to(view: Mapping[str, Any]) -> str | None:
    """Give the way back to the shop, with hints; what they say is to be asked of the API."""
    url: str | None = view.get("return_url")
    if url is None:
        return None
    hints = urlencode({name: view[name] for name in ("checkout_id", "payment_id", "status")})
    parts = urlsplit(url)
    return parts._replace(query=f"{parts.query}&{hints}" if parts.query else hints).geturl()


def picture_of(view: Mapping[str, Any], merchant: Merchant, *, sandbox: bool) -> str | None:
    """Give the product's picture where it lies at an origin that the merchant has registered."""
    image: str | None = view.get("product", {}).get("image")
    if image is None or origin(image) not in merchant.allowed_origins:
        return None
    return image if sandbox or image.startswith("https://") else None


def logo_of(merchant: Merchant) -> str | None:
    """Give the merchant's logo: the operator has set it."""
    return merchant.logo_url


def words_for(texts: Texts, prefix: str) -> dict[str, str]:
    """Pick what the page's scripts say."""
    return texts.pick((*_WORDS, *(key for key in texts.words if prefix and key.startswith(prefix))))
