"""The operator's tax rates, for merchants whose tax this service manages."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import IsoCountry, argument
from payintent.operations.validation import check_rate, quote_input
from payintent.storage import tax_rates
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True)
class TaxRate:
    """A country's tax rate; `0.07` is 7 %."""

    country: str
    rate: Decimal


class SetTaxRate(ChangeOperation[TaxRate], frozen=True, kw_only=True):
    """Set a country's tax rate; quotes that were selected keep theirs."""

    action: ClassVar[str] = "tax.set"
    country: IsoCountry
    rate: Annotated[Decimal, argument("0.07 is 7 %.", metavar="RATE")]

    async def check(self, context: OperationContext) -> None:
        """Refuse an unknown country and an invalid rate."""
        del context
        if self.country not in COUNTRIES:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, f"country {quote_input(self.country)} is not known"
            )
        check_rate("rate", self.rate)

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        """Set the rate and return it with its country."""
        del context
        await tax_rates.set_tax_rate(tx, self.country, self.rate)
        return TaxRate(self.country, self.rate)


class ListTaxRates(ReadOperation[list[TaxRate]], frozen=True, kw_only=True):
    """List tax rates."""

    action: ClassVar[str] = "tax.list"
    columns = ("country", "rate")

    async def read(self, context: OperationContext) -> list[TaxRate]:
        """Return the tax rates by country."""
        rates = await tax_rates.list_tax_rates(context.database)
        return [TaxRate(country, rate) for country, rate in rates.items()]


class RemoveTaxRate(ChangeOperation[TaxRate], frozen=True, kw_only=True):
    """Forget a country's tax rate, which is zero then."""

    action: ClassVar[str] = "tax.remove"
    is_destructive: ClassVar[bool] = True
    country: IsoCountry

    async def apply(self, context: OperationContext, tx: Tx) -> TaxRate:
        """Remove the rate; raise `NOT_FOUND` where there is none."""
        del context
        if not await tax_rates.remove_tax_rate(tx, self.country):
            raise RefusedError(ErrorCode.NOT_FOUND, f"no tax rate of {quote_input(self.country)}")
        return TaxRate(self.country, Decimal(0))
