"""Fill databases with strings that would be harmful as markup, and search pages for them."""

import html
import re
from html.parser import HTMLParser

import asyncpg

#: A string that would escape from an attribute or element, or that a template would evaluate.
MARKUP = "\"><img src=x onerror=alert(1)><script>alert(1)</script>{{7*7}}'"
#: A short version, for columns with a length limit.
SHORT_MARKUP = "<b onclick=x>{{7*7}}'"
#: A URL that must not appear in a link.
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
#: The value of a column by its type. It differs by row because of unique columns.
_VALUES = {"text": "$1 || '~' || ctid::text", "ARRAY": "ARRAY[$1::text || '~' || ctid::text]"}
#: Columns that only the service writes, with values from closed sets or lookup keys.
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
#: Decrypting a proposal needs its proposer's name, and pages do not read migrations.
_BOUND = {"proposal.proposed_by", "schema_migration.name", "schema_migration.checksum"}
_MARKED = re.compile(r"(?:'|//)([a-z_]+\.[a-z_]+)~?")
_COMPUTED = re.compile(r"49'[a-z_]+\.")
_LINKS = frozenset({"href", "src", "action", "formaction", "poster", "data", "content", "srcset"})


async def make_hostile(url: str, text: str) -> set[str]:
    """Fill every text column with `text` and the column's name; return the columns.

    Columns whose constraints reject the text keep their values.
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
                status = await connection.execute(
                    f'UPDATE "{table}" SET "{name}" = {value}', f"{tried}{table}.{name}"
                )
        except asyncpg.PostgresError:
            continue
        return not status.endswith(" 0")
    return False


class _Reader(HTMLParser):
    """Parses a page like a browser, and records how hostile strings were interpreted."""

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
            self.harm.append("<script> with a hostile string")


def find_harm(page: str) -> list[str]:
    """List the parts of a page that would execute a hostile string."""
    reader = _Reader()
    reader.feed(page)
    return reader.harm + [f"computed: {value}" for value in _COMPUTED.findall(html.unescape(page))]


def columns_on(page: str) -> set[str]:
    """List the columns whose hostile string appears on a page."""
    return set(_MARKED.findall(html.unescape(page)))
