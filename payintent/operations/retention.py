"""What retention takes away: shown before a worker does it."""

from dataclasses import dataclass
from typing import ClassVar

from payintent.domain.errors import StorageUnavailableError
from payintent.domain.retention import RetentionRule
from payintent.operations.base import OperationContext, OperationHome, ReadOperation
from payintent.operations.find_cell import cell_away
from payintent.storage import retention

_COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRetention:
    """A rule, after how many days it takes away, and how many rows that are now."""

    rule: RetentionRule
    days: int | None  # None: never
    due: int
    more: bool  # than were counted


class ShowRetention(ReadOperation[list[DueRetention]], frozen=True, kw_only=True):
    """Count what each rule of retention takes away when a worker looks next; changes nothing."""

    action: ClassVar[str] = "retention.show"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    columns: ClassVar[tuple[str, ...]] = ("rule", "days", "due", "more")

    async def read(self, context: OperationContext) -> list[DueRetention]:
        """Return the rules, each with up to 100,000 rows that it counted."""
        found: list[DueRetention] = []
        for rule, days in context.retention.items():
            counted = days and await _count(context, rule, days)
            found.append(
                DueRetention(
                    rule=rule,
                    days=days or None,
                    due=min(counted, _COUNTED_MAX),
                    more=counted > _COUNTED_MAX,
                )
            )
        return found


async def _count(context: OperationContext, rule: RetentionRule, days: int) -> int:
    """Count what a rule takes away in all cells (`SERVICE_UNAVAILABLE` where one is away)."""
    counted = 0
    for number, reading in context.readings.items():
        try:
            counted += await retention.count_due(reading, rule, days, _COUNTED_MAX + 1)
        except StorageUnavailableError as error:
            if not context.cells.are_several:
                raise
            raise cell_away(number, error) from error
    return counted
