"""Operations on tax rates, for merchants with taxes managed by this service."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import BadRequestError, NotFoundError, RefusedError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation, check_agreed
from payintent.operations.fields import IsoCountry, argument
from payintent.operations.validation import check_rate, quote_input
from payintent.storage import merchants, tax_rates
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True)
class TaxRate:
    country: str
    rate: Decimal  # 0.07 is 7 %


class SetTaxRate(ChangeOperation[TaxRate], frozen=True, kw_only=True):
    """Set a country's tax rate; selected quotes keep their rate."""

    action: ClassVar[str] = "tax.set"
    country: IsoCountry
    rate: Annotated[Decimal, argument("0.07 is 7 %.", metavar="RATE")]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True once any merchant is in service: buyers pay the tax."""
        return await merchants.is_in_service(context.database)

    async def changes(self, context: OperationContext) -> list[str]:
        return [await _describe_change(context, self.country, self.rate)]

    async def check(self, context: OperationContext) -> None:
        if self.country not in COUNTRIES:
            raise BadRequestError(f"country {quote_input(self.country)} is not known")
        check_rate("rate", self.rate)

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        check_agreed(context, needs_approval=await merchants.is_in_service(tx))
        await tax_rates.set_tax_rate(tx, self.country, self.rate)
        return TaxRate(self.country, self.rate)


class ListTaxRates(ReadOperation[list[TaxRate]], frozen=True, kw_only=True):
    """List tax rates."""

    action: ClassVar[str] = "tax.list"
    columns = ("country", "rate")

    async def read(self, context: OperationContext) -> list[TaxRate]:
        rates = await tax_rates.list_tax_rates(context.database)
        return [TaxRate(country, rate) for country, rate in rates.items()]


class RemoveTaxRate(ChangeOperation[TaxRate], frozen=True, kw_only=True):
    """Remove a country's tax rate, so that it is zero."""

    action: ClassVar[str] = "tax.remove"
    is_destructive: ClassVar[bool] = True
    country: IsoCountry

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True once any merchant is in service: buyers pay the tax."""
        return await merchants.is_in_service(context.database)

    async def changes(self, context: OperationContext) -> list[str]:
        return [await _describe_change(context, self.country, Decimal(0))]

    async def check(self, context: OperationContext) -> None:
        if self.country not in await tax_rates.list_tax_rates(context.database):
            raise _no_rate(self.country)

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        check_agreed(context, needs_approval=await merchants.is_in_service(tx))
        if not await tax_rates.remove_tax_rate(tx, self.country):
            raise _no_rate(self.country)
        return TaxRate(self.country, Decimal(0))


async def _describe_change(context: OperationContext, country: str, rate: Decimal) -> str:
    rates = await tax_rates.list_tax_rates(context.database)
    return f"the tax rate of {country} becomes {rate}; it is {rates.get(country, 0)}"


def _no_rate(country: str) -> RefusedError:
    return NotFoundError(f"no tax rate for {quote_input(country)}")
