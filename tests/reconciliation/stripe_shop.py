"""A merchant with a card method at the Stripe emulator."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from payintent.accounting.gateway_payouts_store import GatewayPayoutRecord
from payintent.accounting.payouts_operations import ListGatewayPayouts
from payintent.cases.operations import ListCases
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import SessionCreated
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment
from payintent.reconciliation.movements import MovementComparison, compare_movements
from payintent.reconciliation.operations import ListReconciliationRuns
from payintent.reconciliation.runs_store import RunRecord
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.fakes import FakeGateway
from tests.support.stripe import SECRET_KEY, Buyer, credentials
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

#: Time from midnight (UTC) until the previous day is compared, when its list is complete.
_COMPARED_AFTER = timedelta(seconds=3_700)
#: If less time is left before midnight, a test waits, so that all its payments are on the same day.
_MIDNIGHT_MARGIN = timedelta(seconds=30)


@asynccontextmanager
async def stripe_service(settings: Settings, gateway: FakeGateway) -> AsyncGenerator[Service]:
    """Open a service with the Stripe adapter."""
    http = GatewayHttpClient(timeout_s=PATIENCE_S, response_bytes_max=256 * 1024)
    service = await open_service(settings, {"fake": gateway, "stripe": StripeGateway(http)})
    yield service
    await service.close()
    await http.close()


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


class Shop:
    """A merchant's card method at the Stripe emulator, and buyers who pay with it."""

    def __init__(self, world: World, url: str, http: aiohttp.ClientSession) -> None:
        self.world, self.url, self.http = world, url, http
        self.account_id = self.method = self.days = 0
        self.opened_on = datetime.now(UTC)

    async def open(self) -> None:
        """Add the account and the card, on the day on which all later payments are made."""
        midnight = _midnight(datetime.now(UTC)) + timedelta(days=1)
        if (remaining := midnight - datetime.now(UTC)) < _MIDNIGHT_MARGIN:
            await asyncio.sleep(remaining.total_seconds())
        self.opened_on = _midnight(datetime.now(UTC))
        account = await self.world.perform(
            AddAccount(provider="stripe", base_url=self.url, credentials=credentials(self.url))
        )
        self.account_id = account.id
        card = AddPaymentMethod(
            merchant_id=self.world.merchant_id,
            account_id=account.id,
            kind="card",
            label="Stripe",
            currencies=["THB"],
        )
        self.method = (await self.world.perform(card)).id

    async def sell(self) -> Payment:
        """Create and pay a payment of 1590.00 THB, and inquire about its session."""
        payment = await self.pay()
        service = self.world.service
        await self.world.rows("UPDATE session SET inquire_at = clock()")
        for due in await session_store.claim_due(self.world.database, 10, 60.0, []):
            await service.session_inquirer.inquire(due)
        assert await self.world.status(payment) == "PAID"
        return payment

    async def pay(self) -> Payment:
        """Create and pay a payment. The service is not notified."""
        payment = await self.world.create()
        selected = await self.world.select(payment, self.method)
        [row] = await self.world.rows(
            "SELECT reference, next_action FROM session WHERE id = $1", selected.session.id
        )
        action = row["next_action"]
        created = SessionCreated(
            reference=row["reference"],
            next_action=json.loads(action) if isinstance(action, str) else action,
        )
        await Buyer(self.url, self.http).pay(created)
        return payment

    async def pay_out(self) -> str:
        return (await self._post("payouts", secret_key=SECRET_KEY, currency="thb"))["id"]

    async def dispute(self, payment: Payment) -> str:
        [row] = await self.world.rows(
            "SELECT reference FROM session WHERE payment_id = $1", payment.id
        )
        return (await self._post("disputes", payment_intent=row["reference"]))["id"]

    async def decide(self, dispute: str, status: str) -> None:
        await self._post(f"disputes/{dispute}", status=status)

    async def fail(self, payout: str) -> None:
        await self._post(f"payouts/{payout}/fail")

    async def _post(self, path: str, **fields: str) -> Any:
        async with self.http.post(f"{self.url}/_sandbox/{path}", json=fields) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def next_day(self) -> list[RunRecord]:
        """Compare the day that has just ended; return the runs, newest first."""
        await self.end_day()
        return await self.compare()

    async def end_day(self) -> None:
        """Advance the service's clock to shortly after the end of the next unfinished day."""
        self.days += 1
        now = self.opened_on + timedelta(days=self.days) + _COMPARED_AFTER
        await self.world.move_clock((now - datetime.now(UTC)).total_seconds())

    async def compare(self) -> list[RunRecord]:
        await compare_movements(self.comparison)
        return await self.world.perform(ListReconciliationRuns())

    @property
    def comparison(self) -> MovementComparison:
        service = self.world.service
        return MovementComparison(
            service.settings, service.reconciliation_context, service.accounts
        )

    async def payouts(self) -> list[GatewayPayoutRecord]:
        return await self.world.perform(ListGatewayPayouts())

    async def subjects(self) -> list[str]:
        return sorted(case.subject or "" for case in await self.world.perform(ListCases()))
