"""A database filled with copies is as consistent as one filled by the service."""

import asyncpg

from bench.flat_fill import multiply
from payintent.accounting import ledger_check_store
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent_sandbox.seed.history import seed

_PAYMENTS, _COPIES = 60, 3
_UNUSABLE = "SELECT count(*) FROM pg_index WHERE NOT indisvalid OR NOT indisready"
_UNLIKE = """
SELECT count(*)
FROM payment p
LEFT JOIN session s ON s.id = p.session_id AND s.payment_id = p.id
LEFT JOIN checkout c ON c.id = p.checkout_id AND c.payment_id = p.id
LEFT JOIN event e ON e.payment_id = p.id
LEFT JOIN delivery d ON d.event_id = e.id
WHERE c.id IS NULL
    OR (p.session_id IS NULL) <> (s.id IS NULL)
    OR (p.status IN ('PENDING', 'PROCESSING')) <> (d.event_id IS NULL)
"""
_TOGETHER = """
SELECT count(*)
FROM (SELECT created_at < lag(created_at) OVER (ORDER BY ctid) AS goes_back FROM payment) one
WHERE goes_back
"""


async def test_each_payment_is_copied_with_all_its_rows(
    settings: Settings,
) -> None:
    service = await open_service(settings)
    await seed(service, _PAYMENTS, 10, lambda _: None)
    connection = await asyncpg.connect(settings.database_url)
    statuses_before = [
        row[0] for row in await connection.fetch("SELECT status FROM payment ORDER BY status")
    ]

    await multiply(settings.database_url, _COPIES, 1)

    statuses = [
        row[0] for row in await connection.fetch("SELECT status FROM payment ORDER BY status")
    ]
    assert statuses == [status for status in statuses_before for _ in range(_COPIES)]
    assert await connection.fetchval(_UNLIKE) == 0
    assert await connection.fetchval(_TOGETHER) == 0
    assert await connection.fetchval(_UNUSABLE) == 0
    assert await ledger_check_store.find_differences(service.database) == []
    await connection.close()
    await service.close()
