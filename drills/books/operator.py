"""The simulated operator, who advances the clock by a day and records payouts."""

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from payintent.accounting import ledger_store
from payintent.accounting import statements_store as statement_store
from payintent.accounting.payouts_operations import RecordGatewayPayout, RecordPayout
from payintent.core.money import format_smallest_units
from payintent.operators.operation import Actor
from payintent.service import Service

_ACTOR = Actor("drill", "python -m drills.books")
_DAY_S = 86_400
_CLEARING = "gateway_clearing:"


@dataclass(slots=True)
class Operator:
    service: Service
    database: asyncpg.Connection
    merchants: Sequence[int]
    day: int = 1

    async def end_day(self) -> None:
        """Record gateway payouts, pay merchants half of their balances, and start the next day."""
        await self._collect()
        for merchant_id in self.merchants:
            await self._pay(merchant_id)
        await self.database.execute(
            "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE "
            "RETURN date_trunc('milliseconds', statement_timestamp()) "
            f"+ interval '{self.day * _DAY_S} seconds'"
        )
        self.day += 1

    async def _collect(self) -> None:
        """Record a payout of half of each gateway's balance, minus a fee."""
        for line in await ledger_store.list_balances(self.service.database, None, None):
            half = int(line.balance_minor) // 2
            if line.account.startswith(_CLEARING) and half > 1:
                record = RecordGatewayPayout(
                    account_id=int(line.account.removeprefix(_CLEARING)),
                    amount=_units(half - half // 100, line.currency),
                    fee=_units(half // 100, line.currency) if half // 100 else None,
                    currency=line.currency,
                    reference=f"po_{self.day}_{line.currency}",
                )
                await self.service.run_operation(record, _ACTOR)

    async def _pay(self, merchant_id: int) -> None:
        for balance in await statement_store.list_balances(self.service.database, merchant_id):
            half = balance.amount_minor // 2
            if half > 0 and not balance.chain:
                record = RecordPayout(
                    merchant_id=merchant_id,
                    amount=_units(half, balance.currency),
                    currency=balance.currency,
                    reference=f"transfer {self.day} {balance.currency}",
                )
                await self.service.run_operation(record, _ACTOR)


def _units(amount_minor: int, currency: str) -> str:
    return format_smallest_units(amount_minor, currency, None, on_chain=False) or ""
