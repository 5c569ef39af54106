"""Request bodies: their types, and the checks of their values. `null` is the same as not sent."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from payintent.api.surrogates import MetadataDecoder
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.money import is_plain_decimal, to_smallest_unit

EXPIRES_IN_MAX_S = 86_400
EXPIRES_IN_DEFAULT_S = 1_800
_PAYER_UID_MAX = 255
_REASON_MAX = 500
_DESTINATION_MAX = 100
_EMAIL_MAX = 320
_NO_ATOM = r"\x00-\x20\x7f-\xa0\u2028\u2029\"(),:;<>@\[\\\]"
#: An address by its form: a local part, quoted or not, and a domain or an address literal. In any
#: script (RFC 6531); whether mail reaches it is not known here.
_EMAIL = re.compile(
    rf"(?:[^{_NO_ATOM}]+|\"(?:[^\x00-\x1f\x7f\"\\]|\\[^\x00-\x1f\x7f])+\")"
    rf"@(?:[^{_NO_ATOM}.]+(?:\.[^{_NO_ATOM}.]+)*|\[[^{_NO_ATOM}]+(?::[^{_NO_ATOM}]*)*\])"
)


class CreatePaymentBody(msgspec.Struct):
    """`CreatePaymentRequest` of spec section 2.2; unknown fields are ignored."""

    currency: str
    amount: msgspec.Raw
    payer_uid: str
    payer_email: str | None = None
    expires_in: int | None = None
    country: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    include_pegged_assets: bool | None = None


class SelectQuoteBody(msgspec.Struct):
    payment_method_id: int
    currency: str | None = None
    country: str | None = None
    payer_email: str | None = None
    locale: str | None = None
    return_url: str | None = None
    expected_total_amount: str | None = None


class PayerEmailBody(msgspec.Struct):
    payer_email: str


class PostTransactionBody(msgspec.Struct):
    tx_hash: str
    step: str


class CreateRefundBody(msgspec.Struct):
    """The body of `POST /payments/{id}/refunds`; without `amount`, all that is left."""

    amount: msgspec.Raw = msgspec.Raw(b"")
    reason: str | None = None
    destination: str | None = None


class OnrampOrderBody(msgspec.Struct):
    """The body of `POST /onramp/orders`, only the fields that are used."""

    country: str


CREATE = MetadataDecoder(CreatePaymentBody)
SELECT = msgspec.json.Decoder(SelectQuoteBody)
EMAIL = msgspec.json.Decoder(PayerEmailBody)
TRANSACTION = msgspec.json.Decoder(PostTransactionBody)
REFUND = msgspec.json.Decoder(CreateRefundBody)
ONRAMP = msgspec.json.Decoder(OnrampOrderBody)
_TEXT = msgspec.json.Decoder(str)

_LOCALE_MAX = 35
_URL_MAX = 2_048
_METHOD_ID_MAX = 2**63 - 1


def check_create(body: CreatePaymentBody) -> None:
    """Check the texts of a create (`BAD_REQUEST` with the field's name)."""
    check_text("currency", body.currency, 32)
    check_text("payer_uid", body.payer_uid, _PAYER_UID_MAX)
    check_email(body.payer_email)
    if body.expires_in is not None and not 0 <= body.expires_in <= EXPIRES_IN_MAX_S:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"expires_in must be from 0 to {EXPIRES_IN_MAX_S} seconds"
        )
    if body.country is not None and len(body.country) != 2:  # noqa: PLR2004 - alpha-2
        raise RefusedError(ErrorCode.BAD_REQUEST, "country must have two letters")


def check_select(body: SelectQuoteBody) -> None:
    if not 0 <= body.payment_method_id <= _METHOD_ID_MAX:
        raise RefusedError(ErrorCode.PAYMENT_METHOD_NOT_FOUND, "no such payment method")
    check_email(body.payer_email)
    for name, value, longest in (
        ("locale", body.locale, _LOCALE_MAX),
        ("return_url", body.return_url, _URL_MAX),
    ):
        if value is not None:
            check_text(name, value, longest)


def check_refund(body: CreateRefundBody) -> None:
    for name, value, longest in (
        ("reason", body.reason, _REASON_MAX),
        ("destination", body.destination, _DESTINATION_MAX),
    ):
        if value is not None:
            check_text(name, value, longest)


def check_text(name: str, value: str, longest: int) -> None:
    """Refuse (`BAD_REQUEST`) a text that is empty, too long, or that cannot be stored."""
    if not 1 <= len(value) <= longest:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must have 1 to {longest} characters")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} holds characters that cannot be kept")


def check_email(value: str | None) -> None:
    """Refuse (`BAD_REQUEST`) a text that does not have the form of an e-mail address."""
    if value is not None and (len(value) > _EMAIL_MAX or not _EMAIL.fullmatch(value)):
        raise RefusedError(ErrorCode.BAD_REQUEST, "payer_email must be an e-mail address")


def read_expected_total(text: str | None) -> Decimal | None:
    """Read `expected_total_amount`, which is compared by value (`BAD_REQUEST` if malformed)."""
    if text is None:
        return None
    if not is_plain_decimal(text):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected_total_amount must be a plain decimal string"
        )
    return Decimal(text)


def check_held(amount: Decimal, currency: str, payable: Mapping[str, int]) -> None:
    """Refuse (`INVALID_AMOUNT`) an amount that none of the merchant's tokens can represent.

    `payable` has the most decimals that a method supports for each currency.
    """
    if not CURRENCIES[currency].crypto:
        return
    decimals = payable[currency]
    if to_smallest_unit(amount, decimals) is None:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, f"{currency} of this merchant has at most {decimals} decimals"
        )


def amount_value(raw: msgspec.Raw) -> Any:
    """Return a JSON string's text, and a value that is no text for anything else."""
    encoded = bytes(raw)
    if not encoded.startswith(b'"'):
        return None
    try:
        return _TEXT.decode(encoded)
    except msgspec.DecodeError:
        return None


def read_refund_amount(raw: msgspec.Raw) -> str | None:
    """Return the text of a refund's amount; None where it was not sent.

    Raises `INVALID_AMOUNT` where it is no text. `null` is refused too, so that no mistake
    refunds everything.
    """
    if not bytes(raw):
        return None
    text = amount_value(raw)
    if text is None:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, "amount must be a plain decimal string", malformed=True
        )
    return text
