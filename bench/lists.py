"""Measure how long it takes to read a page of payments, from a short list and from a long list."""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec

from bench.http import body_start, request
from bench.installation import Installation
from bench.report import Listing, percentile_ms
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent.runtime.settings import Settings
from payintent.service import open_service

_RECEIVED_MAX = 1 << 16
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_APART = timedelta(milliseconds=50)
# Seven in ten payments are paid, and all of these share a session. There are ten payers.
_INSERT = """
INSERT INTO payment
    (id, merchant_id, checkout_id, status, currency, amount, amount_text, payer_uid,
     include_pegged_assets, metadata, tax_manager, session_id, receipt_id, expires_at, paid_at,
     expired_at, cancelled_at, created_at, updated_at)
SELECT
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008'
        || left(md5($1::bigint || '/' || n), 15))::uuid,
    $1::bigint, 'cs_' || left(md5($1::bigint || '/' || n), 16), status,
    (ARRAY['USD', 'THB', 'JPY'])[1 + n / 10 % 3], 1590, '1590', 'buyer-' || n / 30 % 10, true,
    '{"order_id":"A-1009"}', 'NONE', CASE status WHEN 'PAID' THEN $3::uuid END,
    CASE status WHEN 'PAID' THEN gen_random_uuid() END, at + interval '10 years',
    CASE status WHEN 'PAID' THEN at END, CASE status WHEN 'EXPIRED' THEN at END,
    CASE status WHEN 'CANCELLED' THEN at END, at, at
FROM (
    SELECT n, $4::timestamptz + n * $5::interval AS at,
        CASE WHEN n % 10 < 7 THEN 'PAID' WHEN n % 10 = 7 THEN 'EXPIRED'
            WHEN n % 10 = 8 THEN 'CANCELLED' ELSE 'PENDING' END AS status
    FROM generate_series(1, $2::int) AS n
) one
"""
_QUERIES = {
    "no filter": "",
    "status": "status=EXPIRED",
    "currency and status": "currency=THB&status=CANCELLED",
    "payer": "payer_uid=buyer-3",
    "deep page by cursor": "cursor={cursor}",
}


@dataclass(frozen=True, slots=True)
class _Merchant:
    rows: int
    api_key: str


async def prepare(installation: Installation, sizes: tuple[int, int]) -> list[_Merchant]:
    """Create a merchant for each size, and write its payments."""
    environment = installation.world.service_environment()
    settings = Settings.model_validate(
        {
            "database_url": environment["DATABASE_URL"],
            "pepper": environment["PAYINTENT_PEPPER"],
            "keyring": environment["PAYINTENT_KEYRING"],
            "sandbox": True,
        }
    )
    service = await open_service(settings)
    connection = await asyncpg.connect(settings.database_url)
    session_id = await connection.fetchval("SELECT id FROM session LIMIT 1")
    merchants: list[_Merchant] = []
    for rows in sizes:
        new = await service.run_operation(
            CreateMerchant(name=f"with {rows:,}"), Actor("bench", "bench")
        )
        await connection.execute(_INSERT, new.merchant.id, rows, session_id, _FIRST, _APART)
        merchants.append(_Merchant(rows, new.api_key))
    await connection.execute("VACUUM (ANALYZE) payment")
    await connection.close()
    await service.close()
    return merchants


def measure(installation: Installation, merchants: list[_Merchant], times: int) -> list[Listing]:
    """Request each kind of page, alternating between the small and the large list."""
    port = installation.world.ports.api
    with socket.create_connection(("127.0.0.1", port)) as api:
        api.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return [_listing(api, name, merchants, times) for name in _QUERIES]


def _listing(api: socket.socket, name: str, merchants: list[_Merchant], times: int) -> Listing:
    requests = [
        _request(merchant, _QUERIES[name].format(cursor=_deep(api, merchant)))
        for merchant in merchants
    ]
    seconds: tuple[list[float], ...] = ([], [])
    for is_counted in _kept(times):
        for listing_request, times_s in zip(requests, seconds, strict=True):
            start = time.perf_counter()
            _ask(api, listing_request)
            if is_counted:
                times_s.append(time.perf_counter() - start)
    small, large = seconds
    return Listing(
        name=name,
        rows=(merchants[0].rows, merchants[1].rows),
        p50_ms=(percentile_ms(small, 50), percentile_ms(large, 50)),
        p99_ms=(percentile_ms(small, 99), percentile_ms(large, 99)),
        ratio=percentile_ms(large, 50) / percentile_ms(small, 50),
    )


def _kept(times: int) -> Iterator[bool]:
    """Yield whether to record each round. The first rounds only warm up the caches."""
    yield from [False] * (times // 10 + 1) + [True] * times


def _deep(api: socket.socket, merchant: _Merchant) -> str:
    """Return the cursor of a page in the middle of a list."""
    middle = (_FIRST + _APART * (merchant.rows // 2)).isoformat().replace("+00:00", "Z")
    cursor: str = msgspec.json.decode(_ask(api, _request(merchant, f"created_to={middle}")))[
        "next_cursor"
    ]
    return cursor


def _request(merchant: _Merchant, query: str) -> bytes:
    authorization = {"authorization": f"Bearer {merchant.api_key}"}
    return request("GET", f"/v1/payments?{query}", authorization)


def _ask(api: socket.socket, request_bytes: bytes) -> bytes:
    """Send a request, and return the body of the response, which must be a full page."""
    api.sendall(request_bytes)
    data = b""
    while not (start := body_start(data)):
        received = api.recv(_RECEIVED_MAX)
        if not received:
            raise RuntimeError("the API closed the connection")
        data += received
    if not data.startswith(b"HTTP/1.1 200 ") or b'"next_cursor"' not in data:
        raise RuntimeError(f"not a full page:\n{data.decode(errors='replace')}")
    return data[start:]
