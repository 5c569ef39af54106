"""The operator's tax rates, for merchants whose tax this service manages."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from payintent.domain.currencies import COUNTRIES
from payintent.domain.errors import Code, Refused
from payintent.operations.base import Change, Desk, Read
from payintent.operations.validation import check_rate, told
from payintent.storage import tax_rates
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True)
class TaxRate:
    """A country's tax rate; `0.07` is 7 %."""

    country: str
    rate: Decimal


class SetTax(Change[TaxRate], frozen=True, kw_only=True):
    """Set a country's tax rate; quotes that were selected keep theirs."""

    action: ClassVar[str] = "tax.set"
    country: str
    rate: Decimal

    async def check(self, desk: Desk) -> None:
        """Refuse an unknown country and a rate that is none."""
        del desk
        if self.country not in COUNTRIES:
            raise Refused(Code.BAD_REQUEST, f"country {told(self.country)} is not known")
        check_rate("rate", self.rate)

    async def apply(self, desk: Desk, tx: Tx) -> TaxRate:
        """Write it."""
        del desk
        await tax_rates.set_tax_rate(tx, self.country, self.rate)
        return TaxRate(self.country, self.rate)


class ListTaxes(Read[list[TaxRate]], frozen=True, kw_only=True):
    """List tax rates by country."""

    action: ClassVar[str] = "tax.list"

    async def read(self, desk: Desk) -> list[TaxRate]:
        """Give them."""
        known = await tax_rates.tax_rates(desk.database)
        return [TaxRate(country, rate) for country, rate in known.items()]


class RemoveTax(Change[TaxRate], frozen=True, kw_only=True):
    """Forget a country's tax rate, which is zero then."""

    action: ClassVar[str] = "tax.remove"
    country: str

    async def apply(self, desk: Desk, tx: Tx) -> TaxRate:
        """Remove it."""
        del desk
        if not await tax_rates.remove_tax_rate(tx, self.country):
            raise Refused(Code.NOT_FOUND, f"no tax rate of {told(self.country)}")
        return TaxRate(self.country, Decimal(0))
