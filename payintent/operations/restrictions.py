"""Country-level restrictions of crypto and of on-ramp orders (spec section 2.7)."""

from dataclasses import dataclass
from typing import ClassVar

from payintent.domain.errors import Code, Refused
from payintent.domain.restriction import RestrictionType
from payintent.operations.base import Change, Desk, Read
from payintent.operations.validation import check_iso_country, told
from payintent.storage import fraud
from payintent.storage.database import Tx
from payintent.storage.fraud import Restriction


@dataclass(frozen=True, slots=True)
class Restricted:
    """A country's restriction after a change."""

    type: RestrictionType
    country: str
    active: bool


class AddRestriction(Change[Restricted], frozen=True, kw_only=True):
    """Restrict a country; every process knows within seconds."""

    action: ClassVar[str] = "restriction.add"
    type: RestrictionType
    country: str

    async def check(self, desk: Desk) -> None:
        """Refuse what is no country code."""
        del desk
        check_iso_country(self.country)

    async def apply(self, desk: Desk, tx: Tx) -> Restricted:
        """Write it; restricting twice changes nothing."""
        del desk
        await fraud.set_restriction(tx, self.type, self.country, active=True)
        return Restricted(self.type, self.country, active=True)


class ListRestrictions(Read[list[Restriction]], frozen=True, kw_only=True):
    """List restrictions, lifted ones too."""

    action: ClassVar[str] = "restriction.list"

    async def read(self, desk: Desk) -> list[Restriction]:
        """Give them."""
        return await fraud.restricted(desk.database)


class LiftRestriction(Change[Restricted], frozen=True, kw_only=True):
    """Lift a country's restriction."""

    action: ClassVar[str] = "restriction.lift"
    type: RestrictionType
    country: str

    async def apply(self, desk: Desk, tx: Tx) -> Restricted:
        """Write it."""
        del desk
        if not await fraud.set_restriction(tx, self.type, self.country, active=False):
            raise Refused(Code.NOT_FOUND, f"{told(self.country)} has no {self.type} restriction")
        return Restricted(self.type, self.country, active=False)
