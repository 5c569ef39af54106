"""Crypto and on-ramp restrictions by country."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.core.errors import NotFoundError
from payintent.db.database import Executor, Tx
from payintent.db.lists import build
from payintent.merchants.payable import Restrictions, RestrictionType
from payintent.operators.fields import ViewerCountry, argument, check_viewer_country, quote_input
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_RESTRICTIONS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    type: RestrictionType
    country: str
    active: bool
    changed_at: datetime


async def list_restrictions(database: Executor) -> list[Restriction]:
    """List restrictions, including lifted restrictions, sorted by type and country."""
    rows = await database.fetch(
        """
        SELECT type, country, active, changed_at
        FROM restriction
        ORDER BY type, country
        LIMIT $1
        """,
        _RESTRICTIONS_MAX,
    )
    return [build(Restriction, row, type=RestrictionType(row["type"])) for row in rows]


def collect_countries(restrictions: Sequence[Restriction]) -> Restrictions:
    active_restrictions = [restriction for restriction in restrictions if restriction.active]
    return Restrictions(
        crypto=_filter_countries(active_restrictions, RestrictionType.CRYPTO),
        onramp=_filter_countries(active_restrictions, RestrictionType.ONRAMP),
        crypto_listed=_filter_countries(restrictions, RestrictionType.CRYPTO),
    )


async def set_restriction(tx: Tx, kind: RestrictionType, country: str, *, active: bool) -> bool:
    """Restrict a country, or lift its restriction. Returns False if nothing changed."""
    row = await tx.row(
        """
        INSERT INTO restriction AS r (type, country, active)
        SELECT $1, $2, $3
        WHERE $3 OR EXISTS (SELECT FROM restriction WHERE type = $1 AND country = $2)
        ON CONFLICT (type, country) DO UPDATE
        SET active = excluded.active, changed_at = clock()
        WHERE r.active <> excluded.active
        RETURNING country
        """,
        kind,
        country,
        active,
    )
    return row is not None


def _filter_countries(restrictions: Sequence[Restriction], kind: RestrictionType) -> frozenset[str]:
    return frozenset(
        restriction.country for restriction in restrictions if restriction.type is kind
    )


@dataclass(frozen=True, slots=True)
class RestrictionChange:
    type: RestrictionType
    country: str
    active: bool


_Type = Annotated[
    RestrictionType,
    argument("CRYPTO restricts tokens; ONRAMP restricts on-ramp orders.", metavar="TYPE"),
]


class AddRestriction(ChangeOperation[RestrictionChange], frozen=True, kw_only=True):
    """Restrict a country. The restriction takes effect within seconds."""

    action: ClassVar[str] = "restriction.add"
    type: _Type
    country: ViewerCountry

    async def check(self, context: OperationContext) -> None:
        check_viewer_country(self.country)

    async def apply(self, context: OperationContext, tx: Tx) -> RestrictionChange:
        await set_restriction(tx, self.type, self.country, active=True)
        return RestrictionChange(self.type, self.country, active=True)


class ListRestrictions(ReadOperation[list[Restriction]], frozen=True, kw_only=True):
    """List restrictions, including lifted restrictions."""

    action: ClassVar[str] = "restriction.list"
    columns = ("type", "country", "active", "changed_at")

    async def read(self, context: OperationContext) -> list[Restriction]:
        return await list_restrictions(context.database)


class LiftRestriction(ChangeOperation[RestrictionChange], frozen=True, kw_only=True):
    """Lift a country's restriction."""

    action: ClassVar[str] = "restriction.lift"
    type: _Type
    country: ViewerCountry

    async def apply(self, context: OperationContext, tx: Tx) -> RestrictionChange:
        if not await set_restriction(tx, self.type, self.country, active=False):
            raise NotFoundError(f"{quote_input(self.country)} has no {self.type} restriction")
        return RestrictionChange(self.type, self.country, active=False)
