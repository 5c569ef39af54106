"""The 2C2P emulator's data: merchants, invoices and refunds."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from payintent_sandbox.emulators.twoc2p.cards import WORDS, Card

Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]", max_length=2048)]
MASK = re.compile(r"(?<=^.{6}).{6}")


class RefusalError(Exception):
    """A request is rejected with a response code.

    The response is signed if the merchant is known.
    """

    def __init__(self, code: str, *, signed_for: "Account | None" = None) -> None:
        super().__init__(WORDS.get(code, code))
        self.code = code
        self.signed_for = signed_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A merchant of this gateway."""

    merchant_id: Annotated[str, Meta(min_length=1, max_length=25)]
    secret_key: Annotated[str, Meta(min_length=1)] = field(repr=False)
    merchant_public_key: str = ""  # PEM; needed only for refunds
    utc_offset: Annotated[str, Meta(pattern=r"^[+-][0-9]{2}:[0-9]{2}\Z")] = "+08:00"


class Order(Struct, frozen=True, kw_only=True):
    """The claims that the emulator uses from a payment token request."""

    merchantID: str  # noqa: N815 - the wire's names, here and below
    invoiceNo: Annotated[str, Meta(pattern=r"^[0-9A-Za-z]{1,50}\Z")]  # noqa: N815
    description: Annotated[str, Meta(min_length=1, max_length=250)]
    amount: Decimal
    currencyCode: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]  # noqa: N815
    frontendReturnUrl: Url  # noqa: N815
    backendReturnUrl: Url  # noqa: N815
    idempotencyID: Annotated[str, Meta(max_length=100)] | None = None  # noqa: N815
    paymentChannel: list[str] | None = None  # noqa: N815
    paymentExpiry: str | None = None  # noqa: N815
    locale: Literal["en", "id", "ja", "my", "th", "vi", "zh"] | None = None
    userDefined1: Annotated[str, Meta(max_length=150)] = ""  # noqa: N815


@dataclass(slots=True, kw_only=True)
class Refund:
    """A refund of an invoice, in any status."""

    amount: Decimal
    status: str  # RF completed, RP pending, RR rejected
    reference: str
    name: str  # assigned by the merchant
    at: datetime

    @property
    def counts(self) -> bool:
        """Whether the refund reduces the remaining amount."""
        return self.status in {"RF", "RP"}


@dataclass(slots=True, kw_only=True)
class Invoice:
    """An invoice of a merchant, paid at most once."""

    account: Account
    order: Order
    token: str
    page_url: str
    ends_at: datetime
    card: Card | None = None
    code: str | None = None  # response code of the transaction; None before the first attempt
    tran_ref: str = ""
    at: datetime | None = None
    status: str = ""  # A approved, S settled, V voided
    refund_status: str = "RF"  # the status of new refunds
    refunds: list[Refund] = field(default_factory=list[Refund])

    @property
    def payable(self) -> bool:
        """Whether the invoice accepts a card."""
        return self.code is None and self.ends_at > utc_now()

    @property
    def refunded(self) -> Decimal:
        """The sum of completed and pending refunds."""
        if self.status == "V":
            return self.order.amount
        return sum((refund.amount for refund in self.refunds if refund.counts), Decimal(0))

    def view(self, *, notified: bool = False) -> dict[str, Any]:
        """Return the transaction as the merchant receives it.

        Notifications pad the amount with zeros. Missing values are null.
        """
        assert self.code is not None  # noqa: S101 - there is a transaction
        amount = self.order.amount
        bare = self.card is not None and self.card.bare and not notified
        return {
            "merchantID": self.account.merchant_id,
            "invoiceNo": self.order.invoiceNo,
            "accountNo": MASK.sub("XXXXXX", self.card.number) if self.card else "",
            "amount": f"{amount:018.5f}" if notified else f"{amount:.2f}",
            "currencyCode": self.order.currencyCode,
            "tranRef": None if bare else self.tran_ref,
            "customerToken": None,
            "referenceNo": self.tran_ref,
            "transactionDateTime": stamp(self.at, "%Y%m%d%H%M%S"),
            "userDefined1": self.order.userDefined1,
            "respCode": self.code,
            "respDesc": WORDS.get(self.code),
        }


def utc_now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime | None, form: str) -> str:
    """Format a time in UTC; the default is the current time."""
    return (moment or utc_now()).strftime(form)
