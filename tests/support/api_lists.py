"""Helpers for tests of lists: requests, cursors, and reads that bypass the API."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from payintent.core import ids
from tests.support.world import Answer, Api

START = datetime(2026, 11, 21, 8, tzinfo=UTC)  # the creation time of the first written payment


async def list_payments(api: Api, key: str | None = None, **query: object) -> Answer:
    """`GET /payments` with this query."""
    return await send(api, urlencode({name: str(value) for name, value in query.items()}), key)


async def send(api: Api, query: str, key: str | None = None) -> Answer:
    """`GET /payments` with a raw query string."""
    return await api.send("GET", f"/v1/payments?{query}", headers=api.bearer(key))


async def pages(api: Api, **query: object) -> list[list[str]]:
    """Follow the cursors to the end; return the ids on each page."""
    id_pages: list[list[str]] = []
    while len(id_pages) < 1_000:
        answer = await list_payments(api, **query)
        assert answer.status == 200, answer.body
        id_pages.append([item["id"] for item in answer.json["data"]])
        if "next_cursor" not in answer.json:
            return id_pages
        query["cursor"] = answer.json["next_cursor"]
    raise AssertionError("the list does not end")


@dataclass(frozen=True)
class Row:
    id: str
    status: str
    currency: str
    payer_uid: str
    created_at: datetime


async def read_payments(api: Api) -> list[Row]:
    """Read a merchant's payments in list order."""
    rows = await api.world.rows(
        "SELECT id, status, currency, payer_uid, created_at FROM payment WHERE merchant_id = $1",
        api.world.merchant_id,
    )
    rows.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
    return [Row(**{**row, "id": ids.format_id(ids.PAYMENT, row["id"])}) for row in map(dict, rows)]


def format_at(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def create_in_sequence(api: Api, count: int) -> list[Answer]:
    """Create payments a millisecond apart, because simultaneous payments have no defined order."""
    created = [await api.create() for _ in range(count)]
    await api.world.rows(
        "UPDATE payment p SET created_at = created_at - $1 * interval '1 ms' + n * interval '1 ms' "
        "FROM unnest($2::uuid[]) WITH ORDINALITY AS c (id, n) WHERE p.id = c.id",
        count,
        [ids.parse_id(ids.PAYMENT, item.json["id"]) for item in created],
    )
    return created
