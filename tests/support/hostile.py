"""Texts that would do harm as markup: put into a database, and looked for in pages."""

import html
import re
from html.parser import HTMLParser

import asyncpg

#: What leaves its attribute and its element, and what a template would compute.
MARKUP = "\"><img src=x onerror=alert(1)><script>alert(1)</script>{{7*7}}'"
#: The same in little, for columns that are bounded.
SHORT_MARKUP = "<b onclick=x>{{7*7}}'"
#: What a link must not lead to.
ADDRESS = "javascript:alert(1)//"

_COLUMNS = """
    SELECT c.table_name AS "table", c.column_name AS name, c.data_type AS type
    FROM information_schema.columns c
    JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER'
        AND c.data_type IN ('text', 'json', 'jsonb', 'ARRAY')
    ORDER BY 1, 2
"""
_JSON = """
    json_build_object('order_id', $1::text, 'product', json_build_object('name', $1, 'detail', $1,
    'image', $1, 'category', $1, 'quantity', $1, 'vendor', $1), $1, $1)
"""
#: How a column of a type is filled; rows differ, for the sake of unique columns.
_VALUES = {"text": "$1 || '~' || ctid::text", "ARRAY": "ARRAY[$1::text || '~' || ctid::text]"}
#: Columns of words that the service alone writes, out of closed sets or by which it finds rows.
_WORDS = {
    *("action", "amount", "amount_text", "chain", "channel", "checkout_id", "class", "countries"),
    *("country", "currencies", "currency", "estimated_tax", "failure_reason", "fee_amount"),
    *(
        "fee_mode",
        "fee_rate",
        "kind",
        "label_translations",
        "leg",
        "limits",
        "mark",
        "next_action",
        "operation",
    ),
    *("outcome", "refund_approval_above"),
    *("pepper_mark", "provider", "provider_name", "requested_countries", "requested_currencies"),
    *("route", "slug", "symbol", "time_zone", "token", "token_public_id", "total_amount"),
    *("checkout.id", "ring_key.name", "provider.name"),
}
#: What decrypts a proposal names its proposer; migrations are not read by pages.
_BOUND = {"proposal.proposed_by", "schema_migration.name", "schema_migration.checksum"}
_MARKED = re.compile(r"(?:'|//)([a-z_]+\.[a-z_]+)~?")
_COMPUTED = re.compile(r"49'[a-z_]+\.")
_LINKS = frozenset({"href", "src", "action", "formaction", "poster", "data", "content", "srcset"})


async def make_hostile(url: str, text: str) -> set[str]:
    """Fill every text of a database with `text` and its column's name; gives what was filled.

    What the constraints of a column refuse stays as it is.
    """
    connection = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica")
    filled = set[str]()
    for column in await connection.fetch(_COLUMNS):
        name = f"{column['table']}.{column['name']}"
        if not {column["name"], name} & (_WORDS | _BOUND) and await _fill(connection, column, text):
            filled.add(name)
    await connection.close()
    return filled


async def _fill(connection: asyncpg.Connection, column: asyncpg.Record, text: str) -> bool:
    table, name = column["table"], column["name"]
    value = _VALUES.get(column["type"], _JSON)
    for tried in (text, SHORT_MARKUP if text == MARKUP else text):
        try:
            async with connection.transaction():
                done = await connection.execute(
                    f'UPDATE "{table}" SET "{name}" = {value}', f"{tried}{table}.{name}"
                )
        except asyncpg.PostgresError:
            continue
        return not done.endswith(" 0")
    return False


class _Reader(HTMLParser):
    """Reads a page as a browser does, and notes what a hostile text has become."""

    def __init__(self) -> None:
        super().__init__()
        self.harm: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            text = re.sub(r"[\x00-\x20]", "", value or "").lower()
            if name.startswith("on") or (name in _LINKS and "javascript:" in text[:30]):
                self.harm.append(f"<{tag} {name}={value!r}>")
            if name == "src" and value == "x":
                self.harm.append(f"<{tag} src=x>")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "alert(" in data:
            self.harm.append("<script> with a foreign text")


def harm_of(page: str) -> list[str]:
    """Tell what of a page would do as a hostile text says."""
    reader = _Reader()
    reader.feed(page)
    return reader.harm + [f"computed: {found}" for found in _COMPUTED.findall(html.unescape(page))]


def columns_on(page: str) -> set[str]:
    """Tell of which columns a page shows the hostile text."""
    return set(_MARKED.findall(html.unescape(page)))
