"""The operations of `bench.flat`: each step of a payment, and reads of other payments."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Self
from uuid import UUID, uuid4

import asyncpg

from payintent.gateways.port import (
    Capture,
    GatewayAccount,
    GatewaySessionRequest,
    GatewaySessionState,
    SessionCreated,
    SessionReport,
)
from payintent.gateways.simulator import SimulatorGateway
from payintent.merchants.model import TaxManager
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.select_quote import QuoteSelection, select_quote
from payintent.payment_sessions.settle import ReportedSession, settle_sessions
from payintent.payments.expire import expire_due_pending
from payintent.payments.list_store import PaymentFilter
from payintent.payments.lookup import list_merchant_payments
from payintent.payments.model import CreatePaymentRequest, Payment
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.list_quotes import QuoteQuery, list_quotes
from payintent.service import Service
from payintent.webhooks.dispatcher import DatabaseOutbox, to_record
from payintent.webhooks.model import AttemptOutcome, AttemptResult

EACH = 40  # consecutive runs of an operation
_RECENT = 5_000  # payments that shops and operators may still read
_PAGE = 20
_CURRENCY = "THB"
_MINOR = 159_000
_METADATA = '{"order_id":"A-1009","cart":"8f14e45f"}'


class AcceptingGateway(SimulatorGateway):
    """A gateway that accepts every session immediately."""

    def __init__(self) -> None:
        super().__init__(http=None)  # type: ignore[arg-type] # HTTP is not used

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated:
        del account
        return SessionCreated(
            reference=f"bench-{request.session_id}",
            next_action={
                "type": "redirect",
                "redirect": {"url": "http://127.0.0.1:9/", "method": "GET", "fields": {}},
            },
        )


@dataclass(slots=True)
class Work:
    """A service connected to a database, and the payments in progress."""

    service: Service
    random: Random
    merchant_id: int
    method_id: int
    recent: list[tuple[int, UUID]]
    any_age: list[tuple[int, UUID]]
    each: int = EACH
    payments: list[Payment] = field(default_factory=list[Payment])
    snapshots: list[PaymentSnapshot] = field(default_factory=list[PaymentSnapshot])
    selected: list[SelectedSession] = field(default_factory=list[SelectedSession])

    @classmethod
    async def open(cls, service: Service, connection: asyncpg.Connection, random: Random) -> Self:
        """Choose the merchant with the most payments, and the payments to read."""
        first = await connection.fetchrow(
            "SELECT m.merchant_id, m.id FROM payment_method m JOIN merchant t ON"
            " t.id = m.merchant_id WHERE t.name = 'Seeded 1' AND m.kind = 'card' LIMIT 1"
        )
        newest = await connection.fetch(
            "SELECT merchant_id, id FROM payment ORDER BY id DESC LIMIT $1", _RECENT
        )
        # Payments from the whole period. A table of a few thousand rows is read completely.
        spread = await connection.fetch(
            "SELECT merchant_id, id FROM payment ORDER BY md5(id::text) LIMIT $1", _RECENT
        )
        return cls(
            service=service,
            random=random,
            merchant_id=first["merchant_id"],
            method_id=first["id"],
            recent=[(row["merchant_id"], row["id"]) for row in newest],
            any_age=[(row["merchant_id"], row["id"]) for row in spread],
        )

    async def close(self) -> None:
        await self.service.close()

    async def create(self) -> int:
        """Create the payments that later steps settle."""
        self.payments = [await self._create(1800) for _ in range(self.each)]
        return self.each

    async def read_recent(self) -> int:
        """Read recent payments."""
        return await self._read(self.recent)

    async def read_any(self) -> int:
        """Read payments of any age."""
        return await self._read(self.any_age)

    async def list_first_page(self) -> int:
        """List a merchant's latest payments."""
        for _ in range(self.each):
            service = self.service
            payment_filter = PaymentFilter(merchant_id=self.merchant_id, limit=_PAGE)
            page, _ = await list_merchant_payments(
                service.database, service.read_database, payment_filter
            )
            assert len(page) == _PAGE
        return self.each

    async def quote(self) -> int:
        """Find payments by their checkout IDs, and quote their methods."""
        service = self.service
        restrictions = await service.policies.get_restrictions()
        self.snapshots = []
        for payment in self.payments:
            snapshot = await service.payment_lookup.find_checkout_payment(payment.checkout_id)
            quote_list = await list_quotes(
                service.database,
                service.merchants,
                service.accounts,
                snapshot,
                QuoteQuery(restrictions=restrictions),
            )
            assert quote_list.quotes
            self.snapshots.append(snapshot)
        return self.each

    async def select(self) -> int:
        """Select a card at a gateway that accepts immediately."""
        restrictions = await self.service.policies.get_restrictions()
        selection = QuoteSelection(payment_method_id=self.method_id)
        context = self.service.selection_context
        self.selected = [
            await select_quote(context, snapshot, selection, restrictions)
            for snapshot in self.snapshots
        ]
        return self.each

    async def settle(self) -> int:
        """Report each payment as paid."""
        for item in self.selected:
            async with self.service.database.transaction() as tx:
                reported = [_report(item)]
                [paid] = await settle_sessions(tx, reported)
            assert paid.paid_at is not None
        return self.each

    async def settle_together(self) -> int:
        """Report all payments as paid, like callbacks that arrive together."""
        async with self.service.database.transaction() as tx:
            reported = [_report(item) for item in self.selected]
            paid = await settle_sessions(tx, reported)
        assert all(payment.paid_at for payment in paid)
        return self.each

    async def prepare_due(self) -> int:
        """Create payments that expire immediately."""
        for _ in range(self.each):
            await self._create(0)
        return self.each

    async def expire(self) -> int:
        """Expire these payments in batches, each in its own transaction."""
        service = self.service
        await expire_due_pending(service.database, 500)
        return self.each

    async def deliver(self) -> int:
        """Claim the events of all ended payments, and record them as delivered."""
        service = self.service
        outbox = DatabaseOutbox(
            database=service.database,
            encryption=service.encryption,
            lease_s=60.0,
        )
        assert self.merchant_id in dict(await outbox.list_due_endpoints())
        claims = await outbox.claim([(self.merchant_id, 2 * self.each)])
        assert len(claims) == 2 * self.each, len(claims)
        attempts = [
            to_record(
                service.database.id_generator.new_id(),
                item,
                AttemptResult(outcome=AttemptOutcome.DELIVERED, status=200, duration_ms=20),
                next_wait_s=None,
            )
            for item in claims
        ]
        await outbox.record(attempts)
        return 2 * self.each

    async def _create(self, expires_in_s: int) -> Payment:
        request = CreatePaymentRequest(
            currency=_CURRENCY,
            amount=Decimal("1590.00"),
            amount_text="1590.00",
            payer_uid=f"buyer-{self.random.randrange(1_000)}",
            payer_email=None,
            include_pegged_assets=True,
            metadata=_METADATA,
            tax_manager=TaxManager.NONE,
            merchant_id=self.merchant_id,
            key=uuid4(),
            request_hash=secrets.token_bytes(32),
            expires_in_s=expires_in_s,
            country=None,
        )
        return (await self.service.payment_creator.create(request)).payment

    async def _read(self, among: list[tuple[int, UUID]]) -> int:
        for merchant_id, payment_id in self.random.choices(among, k=self.each):
            await self.service.payment_lookup.get_merchant_payment(merchant_id, payment_id)
        return self.each


def _report(item: SelectedSession) -> ReportedSession:
    reference = f"bench_{secrets.token_hex(16)}"
    report = SessionReport(
        state=GatewaySessionState.CAPTURED,
        capture=Capture(reference=reference, amount_minor=_MINOR, currency=_CURRENCY),
    )
    return ReportedSession(item.payment.id, item.session.id, report)


#: In this order, because each operation needs the payments from the previous operation.
OPERATIONS: dict[str, Callable[[Work], Awaitable[int]]] = {
    "create": Work.create,
    "get, recent": Work.read_recent,
    "get, any age": Work.read_any,
    "list 20": Work.list_first_page,
    "quote": Work.quote,
    "select": Work.select,
    "settle": Work.settle,
    "create, due immediately": Work.prepare_due,
    "expire": Work.expire,
    "deliver": Work.deliver,
}
