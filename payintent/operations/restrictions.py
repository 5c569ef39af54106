"""Operations on restrictions by country (spec section 2.7)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.domain.errors import NotFoundError
from payintent.domain.restriction import RestrictionType
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ViewerCountry, argument
from payintent.operations.validation import check_viewer_country, quote_input
from payintent.storage import restrictions
from payintent.storage.database import Tx
from payintent.storage.restrictions import Restriction


@dataclass(frozen=True, slots=True)
class RestrictionChange:
    type: RestrictionType
    country: str
    active: bool


_Type = Annotated[
    RestrictionType,
    argument("The restricted offer: tokens, or on-ramp orders.", metavar="TYPE"),
]


class AddRestriction(ChangeOperation[RestrictionChange], frozen=True, kw_only=True):
    """Restrict a country; the restriction applies within seconds."""

    action: ClassVar[str] = "restriction.add"
    type: _Type
    country: ViewerCountry

    async def check(self, context: OperationContext) -> None:
        check_viewer_country(self.country)

    async def apply(self, context: OperationContext, tx: Tx) -> RestrictionChange:
        await restrictions.set_restriction(tx, self.type, self.country, active=True)
        return RestrictionChange(self.type, self.country, active=True)


class ListRestrictions(ReadOperation[list[Restriction]], frozen=True, kw_only=True):
    """List restrictions, including lifted restrictions."""

    action: ClassVar[str] = "restriction.list"
    columns = ("type", "country", "active", "changed_at")

    async def read(self, context: OperationContext) -> list[Restriction]:
        return await restrictions.list_restrictions(context.database)


class LiftRestriction(ChangeOperation[RestrictionChange], frozen=True, kw_only=True):
    """Lift a country's restriction."""

    action: ClassVar[str] = "restriction.lift"
    type: _Type
    country: ViewerCountry

    async def apply(self, context: OperationContext, tx: Tx) -> RestrictionChange:
        if not await restrictions.set_restriction(tx, self.type, self.country, active=False):
            raise NotFoundError(f"{quote_input(self.country)} has no {self.type} restriction")
        return RestrictionChange(self.type, self.country, active=False)
