"""Build SQL statements for keyset pagination."""

from collections.abc import Callable
from string import Formatter
from typing import Any, LiteralString, TypeVar, cast
from uuid import UUID

from payintent.db.database import Executor, Row

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
#: The number of rows that a list may scan if no index returns the rows in key order.
SCANNED_MAX: LiteralString = "10000"
_PARAMETERS: tuple[LiteralString, ...] = (
    *("$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10"),
    *("$11", "$12", "$13", "$14", "$15", "$16", "$17", "$18", "$19", "$20"),
)


class KeysetList:
    """A paginated query whose SQL is the same for every combination of filters.

    Connections cache prepared statements by their SQL, so a separate statement for each
    combination would exhaust the cache. Instead, a filter with the value NULL is disabled. In the
    SQL, `{name}` is the parameter of that name. In a filter's condition, `{}` is the filter's own
    parameter.
    """

    text: LiteralString

    def __init__(
        self,
        select: LiteralString,
        key: LiteralString,
        *where: LiteralString,
        oldest_first: bool = False,
        merchant: LiteralString = "",
        **filters: LiteralString,
    ) -> None:
        """List the rows of `select` in `key` order, after the last key on the previous page.

        The column `merchant` restricts the list to one merchant. It is also the first sort column,
        so that only an index by merchant is suitable. With an index only by key, the database
        might scan the rows of all merchants, which is slow if this merchant's rows are old or few.
        """
        self._parameters = dict[str, LiteralString]()
        self._direction: LiteralString = "ASC" if oldest_first else "DESC"
        self._end = FIRST_ID if oldest_first else LAST_ID
        self._with: LiteralString = ""
        last_key: LiteralString = "({last}, {last_id})" if "," in key else "{last}"
        operator: LiteralString = " > " if oldest_first else " < "
        scope: list[LiteralString] = []
        order: LiteralString = key
        if merchant:
            scope = [merchant + " BETWEEN {merchant_id} AND {merchant_id}"]
            order = merchant + ", " + key
        self._select(
            select, order, [*scope, "(" + key + ")" + operator + last_key, *where], filters
        )

    def as_cte(
        self,
        name: LiteralString,
        limit: LiteralString,
        select: LiteralString,
        order: LiteralString,
        **filters: LiteralString,
    ) -> "KeysetList":
        """Turn the current statement into a CTE called `name`, and list the rows of `select`."""
        separator: LiteralString = ", " if self._with else "WITH "
        limited_rows = self._rows + " LIMIT " + self._bind_parameters(limit)
        self._with += separator + name + " (" + limited_rows + ") "
        self._select(select, order, [], filters)
        return self

    async def page(
        self, database: Executor, last: object, /, limit: int, **values: object
    ) -> list[Row]:
        """Fetch the page after `last`, a key or a `(key, id)` tuple. None means the first page."""
        if isinstance(last, tuple):
            last, values["last_id"] = cast("tuple[object, UUID]", last)
        values |= {"last": self._end if last is None else last, "limit": limit}
        return await database.fetch(self.text, *(values[name] for name in self._parameters))

    def _select(
        self,
        select: LiteralString,
        order: LiteralString,
        where: list[LiteralString],
        filters: dict[str, LiteralString],
    ) -> None:
        conditions: list[LiteralString] = [self._bind_parameters(condition) for condition in where]
        for name, condition in filters.items():
            parameter = self._add_parameter(name)
            conditions.append("(" + condition.format(parameter) + " OR " + parameter + " IS NULL)")
        where_clause: LiteralString = " WHERE " + " AND ".join(conditions) if conditions else ""
        columns: LiteralString = order.replace(", ", " " + self._direction + ", ")
        order_clause: LiteralString = " ORDER BY " + columns + " " + self._direction
        self._rows: LiteralString = self._bind_parameters(select) + where_clause + order_clause
        self.text = self._with + self._rows + " LIMIT " + self._add_parameter("limit")

    def _bind_parameters(self, text: LiteralString) -> LiteralString:
        for _, name, _, _ in Formatter().parse(text):
            if name:
                self._add_parameter(name)
        return text.format(**self._parameters)

    def _add_parameter(self, name: str) -> LiteralString:
        return self._parameters.setdefault(name, _PARAMETERS[len(self._parameters)])


Record = TypeVar("Record")


def build(record: Callable[..., Record], row: Row, **values: Any) -> Record:
    """Build a slotted dataclass from the columns with the same names as its fields.

    `values` contains the fields that have no column, or whose type differs from the column's.
    """
    names: tuple[str, ...] = getattr(record, "__slots__")  # noqa: B009
    return record(**{name: row[name] for name in names if name not in values} | values)


def make_first_id_sql(time: LiteralString) -> LiteralString:
    """Return SQL for the lowest id with the timestamp `time`. Ids start with their timestamp."""
    milliseconds = "greatest(0, extract(epoch FROM " + time + ") * 1000)::bigint"
    return "(lpad(to_hex(" + milliseconds + "), 12, '0') || repeat('0', 20))::uuid"
