"""Whatever is changed in control, in whatever order it commits, a cell has it after a pass."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payintent.config import Settings
from payintent.storage.database import Database
from tests.support.copying import Pair, assert_equal, make_pair
from tests.support.databases import TEMPLATE, Databases

_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
_PROFILE = settings(
    max_examples=1000 if _LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
_COUNT = 4  # rows of each kind that changes meet in
_CONNECTIONS = 2
#: Each takes a number below `_COUNT` and a small number.
_TEXT = r"""
    INSERT INTO merchant (name) VALUES ('Merchant ' || $1::int || $2::int)

    UPDATE merchant SET name = 'Name ' || $2::int
    WHERE id % 4 = $1::int

    UPDATE merchant SET countries = ARRAY['TH', 'DE']
    WHERE id % 4 = $1::int AND $2::int >= 0

    UPDATE merchant SET countries = NULL, time_zone = 'Asia/Bangkok'
    WHERE id % 4 = $1::int AND $2::int >= 0

    INSERT INTO merchant (name, livemode, live_merchant)
    SELECT 'Test ' || $2::int, false, m.id
    FROM merchant m
    WHERE m.id = $1::int + 1 AND m.livemode
    ON CONFLICT DO NOTHING

    INSERT INTO tax_rate
    SELECT (ARRAY['TH', 'DE', 'JP', 'US'])[$1::int + 1], $2::int / 100.0
    ON CONFLICT (country) DO UPDATE SET rate = excluded.rate

    DELETE
    FROM tax_rate
    WHERE country = (ARRAY['TH', 'DE', 'JP', 'US'])[$1::int + 1] AND $2::int >= 0

    UPDATE tax_rate SET country = CASE country WHEN 'TH' THEN 'FR' ELSE 'TH' END
    WHERE country IN ('TH', 'FR') AND $1::int + $2::int > 0
    AND (SELECT count(*) FROM tax_rate WHERE country IN ('TH', 'FR')) = 1

    INSERT INTO rate_limit
    SELECT id, 'create', $2::int + 1, 9
    FROM merchant
    WHERE id = $1::int + 1
    ON CONFLICT (merchant_id, class) DO UPDATE SET per_s = excluded.per_s

    DELETE
    FROM rate_limit
    WHERE merchant_id = $1::int + 1 AND $2::int >= 0

    INSERT INTO api_key (public_id, merchant_id, name, digest, livemode)
    SELECT substr(md5(random()::text), 1, 8), id, $2::int::text, sha256('a'), livemode
    FROM merchant
    WHERE id = $1::int + 1

    UPDATE api_key SET revoked_at = clock()
    WHERE merchant_id = $1::int + 1 AND $2::int > 4

    UPDATE api_key SET last_used_at = clock()
    WHERE merchant_id = $1::int + 1 AND $2::int >= 0

    INSERT INTO provider_account (provider, merchant_id, base_url, livemode, sealed)
    SELECT 'stripe', id, 'http://a.test/' || $2::int, livemode, '\x00ff'
    FROM merchant
    WHERE id = $1::int + 1

    UPDATE provider_account SET enabled = $2::int % 2 = 0
    WHERE id % 4 = $1::int

    INSERT INTO payment_method (merchant_id, account_id, kind, label, currencies, livemode)
    SELECT merchant_id, id, 'card', $2::int::text, ARRAY['THB'], livemode
    FROM provider_account
    WHERE id = $1::int + 1

    UPDATE payment_method SET enabled = NOT enabled, fee_rate = $2::int / 100.0
    WHERE id % 4 = $1::int

    UPDATE chain SET network_id = network_id + 10000, grace_s = $2::int
    WHERE slug = (ARRAY['bsc', 'native', 'ethereum', 'none'])[$1::int + 1]

    UPDATE merchant_cell SET until = greatest(clock(), since)
    WHERE merchant_id = $1::int + 1 AND until IS NULL AND $2::int >= 0

    INSERT INTO merchant_cell (merchant_id, cell, since)
    SELECT id, 1, clock() + random() * interval '1 hour'
    FROM merchant
    WHERE id = $1::int + 1 AND $2::int >= 0
    ON CONFLICT DO NOTHING

    INSERT INTO restriction (type, country, active)
    VALUES ('CRYPTO', 'T' || chr(65 + $1::int), $2::int > 4)
    ON CONFLICT (type, country) DO UPDATE SET active = excluded.active
"""
_CHANGES = _TEXT.split("\n\n")
_ARRANGED = """
    WITH added AS (
        INSERT INTO merchant (name) SELECT 'Merchant ' || n FROM generate_series(1, 4) AS n
        RETURNING id
    ), account AS (
        INSERT INTO provider_account (provider, merchant_id, base_url)
        SELECT 'stripe', id, 'http://a.test' FROM added
        RETURNING id, merchant_id
    )
    INSERT INTO payment_method (merchant_id, account_id, kind, label, currencies)
    SELECT merchant_id, id, 'card', 'Card', ARRAY['THB'] FROM account
"""
_ENDS = ("COMMIT", "ROLLBACK")
_NUMBERS = st.integers(0, _CONNECTIONS - 1)
_CHANGED = st.tuples(
    _NUMBERS, st.sampled_from(_CHANGES), st.integers(0, _COUNT - 1), st.integers(0, 9)
)
_ENDED = st.tuples(_NUMBERS, st.sampled_from(_ENDS))
_STEPS = st.lists(
    st.one_of(_CHANGED, _CHANGED, _CHANGED, _ENDED, st.just("copy")), min_size=10, max_size=40
)


class Run:
    """Changes control over connections whose transactions overlap, and copies in between."""

    def __init__(self, pair: Pair, connections: list[asyncpg.Connection]) -> None:
        self._pair = pair
        self._connections = connections
        self._copier = pair.copier()

    async def play(self, steps: list[Any]) -> None:
        """Take the steps; in the end all have ended, and the copies are what control has."""
        for step in steps:
            if step == "copy":
                await self._copier.step()
                await self._check_consistent()
            elif step[1] in _ENDS:
                await self._end(*step)
            else:
                await self._change(*step)
        for number in range(_CONNECTIONS):
            await self._end(number, "COMMIT")
        await self._copier.step()
        await assert_equal(self._pair)

    async def _change(self, number: int, change: str, row: int, value: int) -> None:
        """Change a row; what another has locked is left alone."""
        connection = self._connections[number]
        if not connection.is_in_transaction():
            await connection.execute("BEGIN")
        await connection.execute("SAVEPOINT change")
        try:
            await connection.execute(change, row, value)
        except asyncpg.LockNotAvailableError:
            await connection.execute("ROLLBACK TO change")

    async def _end(self, number: int, how: str) -> None:
        connection = self._connections[number]
        if connection.is_in_transaction():
            await connection.execute(how)

    async def _check_consistent(self) -> None:
        """Whatever is committed is copied, though other transactions are under way."""
        await assert_equal(self._pair)


@pytest.fixture
def run(any_settings: Settings, databases: Databases) -> Iterator[Any]:
    """Give what plays steps on one pair of databases, in a loop that all examples share."""
    urls = databases.take(TEMPLATE), databases.take(TEMPLATE)
    with asyncio.Runner() as runner:
        control = Database(any_settings.model_copy(update={"database_url": urls[0]}))
        pair, connections = runner.run(_arrange(any_settings, control, urls))
        yield lambda steps: runner.run(Run(pair, connections).play(steps))
        for closing in (*connections, pair, control):
            runner.run(closing.close())
    for url in urls:
        databases.give_back(url)


async def _arrange(
    any_settings: Settings, control: Database, urls: tuple[str, str]
) -> tuple[Pair, list[asyncpg.Connection]]:
    await control.fetch("INSERT INTO installation DEFAULT VALUES ON CONFLICT DO NOTHING")
    await control.fetch(_ARRANGED)
    pair = await make_pair(any_settings, control, urls[1])
    connections = [
        await asyncpg.connect(urls[0], server_settings={"lock_timeout": "50ms", "timezone": zone})
        for zone in ("UTC", "Asia/Kathmandu")
    ]
    return pair, connections


def test_copies_are_what_control_has_after_every_pass(run: Any) -> None:
    _PROFILE(given(_STEPS)(run))()
