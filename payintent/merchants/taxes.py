"""The operator's tax rates by country."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.core.countries import COUNTRIES
from payintent.core.errors import BadRequestError, NotFoundError, RefusedError
from payintent.db.database import Executor, Tx
from payintent.merchants import store as merchant_store
from payintent.operators.fields import IsoCountry, argument, check_rate, quote_input
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_approved,
)


async def list_tax_rates(database: Executor) -> Mapping[str, Decimal]:
    rows = await database.fetch("SELECT country, rate FROM tax_rate ORDER BY country LIMIT 300")
    return {row["country"]: row["rate"] for row in rows}


async def set_tax_rate(tx: Tx, country: str, rate: Decimal) -> None:
    await tx.fetch(
        """
        INSERT INTO tax_rate (country, rate)
        VALUES ($1, $2)
        ON CONFLICT (country) DO UPDATE
        SET rate = excluded.rate
        """,
        country,
        rate,
    )


async def remove_tax_rate(tx: Tx, country: str) -> bool:
    """Remove a country's tax rate. Returns False if it has no rate."""
    row = await tx.row("DELETE FROM tax_rate WHERE country = $1 RETURNING country", country)
    return row is not None


@dataclass(frozen=True, slots=True)
class TaxRate:
    country: str
    rate: Decimal  # 0.07 is 7 %


class _TaxRateChange(ChangeOperation[TaxRate], frozen=True, kw_only=True):
    country: IsoCountry

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval after any merchant has gone live, because buyers pay the tax."""
        return await merchant_store.has_gone_live(context.database)


class SetTaxRate(_TaxRateChange, frozen=True, kw_only=True):
    """Set a country's tax rate. Quotes that buyers have already selected are not affected."""

    action: ClassVar[str] = "tax.set"
    rate: Annotated[Decimal, argument("The rate; 0.07 means 7 %.", metavar="RATE")]

    async def changes(self, context: OperationContext) -> list[str]:
        return [await _describe_change(context, self.country, self.rate)]

    async def check(self, context: OperationContext) -> None:
        if self.country not in COUNTRIES:
            raise BadRequestError(f"country {quote_input(self.country)} is not supported")
        check_rate("rate", self.rate)

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        check_approved(context, needs_approval=await merchant_store.has_gone_live(tx))
        await set_tax_rate(tx, self.country, self.rate)
        return TaxRate(self.country, self.rate)


class ListTaxRates(ReadOperation[list[TaxRate]], frozen=True, kw_only=True):
    """List tax rates."""

    action: ClassVar[str] = "tax.list"
    columns = ("country", "rate")

    async def read(self, context: OperationContext) -> list[TaxRate]:
        rates = await list_tax_rates(context.database)
        return [TaxRate(country, rate) for country, rate in rates.items()]


class RemoveTaxRate(_TaxRateChange, frozen=True, kw_only=True):
    """Remove a country's tax rate. Payments in the country are then taxed at a rate of zero."""

    action: ClassVar[str] = "tax.remove"
    is_destructive: ClassVar[bool] = True

    async def changes(self, context: OperationContext) -> list[str]:
        return [await _describe_change(context, self.country, Decimal(0))]

    async def check(self, context: OperationContext) -> None:
        if self.country not in await list_tax_rates(context.database):
            raise _missing_rate_error(self.country)

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        check_approved(context, needs_approval=await merchant_store.has_gone_live(tx))
        if not await remove_tax_rate(tx, self.country):
            raise _missing_rate_error(self.country)
        return TaxRate(self.country, Decimal(0))


async def _describe_change(context: OperationContext, country: str, rate: Decimal) -> str:
    rates = await list_tax_rates(context.database)
    return f"the tax rate of {country} changes from {rates.get(country, 0)} to {rate}"


def _missing_rate_error(country: str) -> RefusedError:
    return NotFoundError(f"no tax rate for {quote_input(country)}")
