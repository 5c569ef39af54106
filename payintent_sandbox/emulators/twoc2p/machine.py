"""The state of the 2C2P emulator, and the requests that create, pay and query invoices."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from payintent_sandbox.emulators.clock import ScaledClock
from payintent_sandbox.emulators.notifier import Notifier
from payintent_sandbox.emulators.twoc2p.cards import (
    APPROVED,
    CANCELLED,
    IN_PROGRESS,
    PAID,
    Card,
)
from payintent_sandbox.emulators.twoc2p.model import Account, Invoice, Order, RefusalError, utc_now
from payintent_sandbox.emulators.twoc2p.notices import RETRY_WAITS_S, send_notice

INVOICES_MAX = 200_000
TOKEN_VALID_FOR = timedelta(minutes=30)
PROGRESS_S = 30
PLACES_MAX = 5
AMOUNT_MAX = 10**12
CHARGEBACKS = frozenset({"4130", "4131"})


class TwoC2pEmulator:
    """All invoices of the emulator. State changes do not await, so each is atomic."""

    def __init__(self, accounts: Sequence[Account], time_scale: float) -> None:
        self.refund_status = "RF"  # for refunds of payments made after it is set
        self._accounts = {account.merchant_id: account for account in accounts}
        self._invoices: dict[tuple[str, str], Invoice] = {}
        self._by_token: dict[str, Invoice] = {}
        self.first_answers: dict[tuple[str, str], bytes] = {}  # by merchant and idempotencyID
        self._clock = ScaledClock(time_scale)
        self.notifier = Notifier(self._clock, RETRY_WAITS_S)

    @property
    def accounts(self) -> list[Account]:
        """List all merchants of the emulator."""
        return list(self._accounts.values())

    def account(self, merchant_id: str) -> Account:
        """Find a merchant by its id; reject an unknown id."""
        account = self._accounts.get(merchant_id)
        if account is None:
            raise RefusalError("9007")
        return account

    def order(self, account: Account, order: Order, pages_url: str) -> Invoice:
        """Create an invoice once.

        Repeating the order with an `idempotencyID` returns the same token.
        """
        existing = self.find(account, order.invoiceNo)
        if existing and existing.order == order and order.idempotencyID:
            return existing
        if existing:
            raise RefusalError("9015", signed_for=account)
        exponent = order.amount.as_tuple().exponent
        if not isinstance(exponent, int) or not 0 < order.amount < AMOUNT_MAX:
            raise RefusalError("9004", signed_for=account)
        if -exponent > PLACES_MAX or len(self._invoices) >= INVOICES_MAX:
            raise RefusalError("9004", signed_for=account)
        return self._add(account, order, pages_url)

    def find(self, account: Account, invoice_no: str) -> Invoice | None:
        """Find a merchant's invoice by its number."""
        return self._invoices.get((account.merchant_id, invoice_no))

    def page(self, token: str) -> Invoice | None:
        """Find the invoice of a payment page; the token is a capability."""
        return self._by_token.get(token)

    def pay(self, invoice: Invoice, card: Card) -> bool:
        """Pay with a card; return False if the invoice no longer accepts a card."""
        if not invoice.payable:
            return False
        invoice.card = card
        self._decide(invoice, card.code)
        if card.code == IN_PROGRESS:
            self._clock.start(self._approve_later(invoice))
        return True

    def give_up(self, invoice: Invoice) -> bool:
        """Cancel the invoice for the buyer; return False if it has been decided or has expired."""
        if not invoice.payable:
            return False
        self._decide(invoice, CANCELLED)
        return True

    def report(self, invoice: Invoice, code: str) -> None:
        """Set any response code on an invoice, documented or not, and notify its merchant."""
        self._decide(invoice, code)

    def charge_back(self, invoice: Invoice, code: str) -> None:
        """Record a chargeback or its rejection. The invoice must have been paid."""
        if code not in CHARGEBACKS or not invoice.status:
            raise RefusalError("9004")
        invoice.code = code
        self._clock.start(send_notice(self.notifier, invoice))

    def _add(self, account: Account, order: Order, pages_url: str) -> Invoice:
        token = secrets.token_urlsafe(48)
        invoice = Invoice(
            account=account,
            order=order,
            token=token,
            page_url=f"{pages_url}/payment/4.3/token/{token}",
            ends_at=min(utc_now() + TOKEN_VALID_FOR, _deadline(account, order)),
        )
        self._invoices[account.merchant_id, order.invoiceNo] = invoice
        self._by_token[token] = invoice
        return invoice

    def _decide(self, invoice: Invoice, code: str) -> None:
        invoice.code, invoice.at = code, utc_now()
        invoice.tran_ref = invoice.tran_ref or str(secrets.randbelow(10**12))
        if code in PAID:
            invoice.status = "S" if invoice.card and invoice.card.settled else "A"
            invoice.refund_status = self.refund_status
        if not (invoice.card and invoice.card.silent):
            self._clock.start(send_notice(self.notifier, invoice))

    async def _approve_later(self, invoice: Invoice) -> None:
        await self._clock.wait(PROGRESS_S)
        self._decide(invoice, APPROVED)


def _deadline(account: Account, order: Order) -> datetime:
    """Read `paymentExpiry` in the merchant's UTC offset."""
    if order.paymentExpiry is None:
        return utc_now() + TOKEN_VALID_FOR
    text = f"{order.paymentExpiry} {account.utc_offset}"
    try:
        deadline = datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        raise RefusalError("9008", signed_for=account) from None
    if deadline <= utc_now():
        raise RefusalError("9008", signed_for=account)
    return deadline
