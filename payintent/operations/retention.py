"""Preview the data that retention will delete."""

from dataclasses import dataclass
from typing import ClassVar

from payintent.domain.retention import RetentionRule
from payintent.operations.base import OperationContext, ReadOperation
from payintent.storage import retention

_COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRetention:
    """A rule, its period, and the number of rows that it would delete now."""

    rule: RetentionRule
    days: int | None  # None: never
    due: int
    more: bool  # more rows are due than were counted


class ShowRetention(ReadOperation[list[DueRetention]], frozen=True, kw_only=True):
    """Count the rows that each retention rule will delete next, without deleting them."""

    action: ClassVar[str] = "retention.show"
    columns: ClassVar[tuple[str, ...]] = ("rule", "days", "due", "more")

    async def read(self, context: OperationContext) -> list[DueRetention]:
        """Return all rules, each with up to 100,000 rows."""
        rules: list[DueRetention] = []
        for rule, days in context.settings.retention.items():
            count = days and await retention.count_due(
                context.reading, rule, days, _COUNTED_MAX + 1
            )
            rules.append(
                DueRetention(
                    rule=rule,
                    days=days or None,
                    due=min(count, _COUNTED_MAX),
                    more=count > _COUNTED_MAX,
                )
            )
        return rules
