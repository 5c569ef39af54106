"""What retention takes away: shown before a worker does it."""

from dataclasses import dataclass
from typing import ClassVar

from payintent.domain.retention import RetentionRule
from payintent.operations.base import OperationContext, ReadOperation
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
    columns: ClassVar[tuple[str, ...]] = ("rule", "days", "due", "more")

    async def read(self, context: OperationContext) -> list[DueRetention]:
        """Return the rules, each with up to 100,000 rows that it counted."""
        found: list[DueRetention] = []
        for rule, days in context.settings.retention.items():
            counted = days and await retention.count_due(
                context.reading, rule, days, _COUNTED_MAX + 1
            )
            found.append(
                DueRetention(
                    rule=rule,
                    days=days or None,
                    due=min(counted, _COUNTED_MAX),
                    more=counted > _COUNTED_MAX,
                )
            )
        return found
