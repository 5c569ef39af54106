"""Lists that are read page by page, in the order of a key."""

from string import Formatter
from typing import LiteralString, cast
from uuid import UUID

from payintent.storage.database import Executor, Row

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
#: Rows that a list looks through if no index holds what is listed in the order of its key.
LOOKED_MAX: LiteralString = "10000"
_PLACES: tuple[LiteralString, ...] = (
    *("$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10"),
    *("$11", "$12", "$13", "$14", "$15", "$16", "$17", "$18", "$19", "$20"),
)


class KeysetList:
    """The statement of a list; its text is the same whatever is filtered by.

    A connection prepares a statement per text, and a text per combination of filters would be too
    many: a condition of `given` is switched off by the value NULL. `{name}` in a text stands for
    the value of that name, `{}` in a condition of `given` for the value of its own.
    """

    text: LiteralString

    def __init__(
        self,
        select: LiteralString,
        key: LiteralString,
        *where: LiteralString,
        oldest_first: bool = False,
        merchant: LiteralString = "",
        **given: LiteralString,
    ) -> None:
        """List the rows of `select` beyond the last key of the page before.

        With the column `merchant`, list the rows of one merchant. Only an index of each merchant's
        rows has the order that this asks for: in the order of the key alone, all merchants' rows
        might be read, which is slow if this merchant's are old or few.
        """
        self._places = dict[str, LiteralString]()
        self._direction: LiteralString = "ASC" if oldest_first else "DESC"
        self._end = FIRST_ID if oldest_first else LAST_ID
        self._with: LiteralString = ""
        last: LiteralString = "({last}, {last_id})" if "," in key else "{last}"
        beyond: LiteralString = " > " if oldest_first else " < "
        of_one: list[LiteralString] = []
        order: LiteralString = key
        if merchant:
            of_one = [merchant + " BETWEEN {merchant_id} AND {merchant_id}"]
            order = merchant + ", " + key
        self._select(select, order, [*of_one, "(" + key + ")" + beyond + last, *where], given)

    def within(
        self,
        name: LiteralString,
        limit: LiteralString,
        select: LiteralString,
        order: LiteralString,
        **given: LiteralString,
    ) -> "KeysetList":
        """Name what is listed so far, up to a limit, and list what `select` reads from it."""
        separator: LiteralString = ", " if self._with else "WITH "
        limited = self._rows + " LIMIT " + self._fill(limit)
        self._with += separator + name + " (" + limited + ") "
        self._select(select, order, [], given)
        return self

    async def page(
        self, database: Executor, last: object, /, limit: int, **values: object
    ) -> list[Row]:
        """Read a page; `last` is the key that ended the page before, None for the first page.

        If an id completes the key, `last` has both.
        """
        if isinstance(last, tuple):
            last, values["last_id"] = cast("tuple[object, UUID]", last)
        values |= {"last": self._end if last is None else last, "limit": limit}
        return await database.fetch(self.text, *(values[name] for name in self._places))

    def _select(
        self,
        select: LiteralString,
        order: LiteralString,
        where: list[LiteralString],
        given: dict[str, LiteralString],
    ) -> None:
        conditions: list[LiteralString] = [self._fill(condition) for condition in where]
        for name, condition in given.items():
            place = self._place(name)
            conditions.append("(" + condition.format(place) + " OR " + place + " IS NULL)")
        chosen: LiteralString = " WHERE " + " AND ".join(conditions) if conditions else ""
        directed: LiteralString = order.replace(", ", " " + self._direction + ", ")
        ordered: LiteralString = " ORDER BY " + directed + " " + self._direction
        self._rows: LiteralString = self._fill(select) + chosen + ordered
        self.text = self._with + self._rows + " LIMIT " + self._place("limit")

    def _fill(self, text: LiteralString) -> LiteralString:
        for _, name, _, _ in Formatter().parse(text):
            if name:
                self._place(name)
        return text.format(**self._places)

    def _place(self, name: str) -> LiteralString:
        return self._places.setdefault(name, _PLACES[len(self._places)])
