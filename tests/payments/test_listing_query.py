"""The query of `GET /payments`: cursors, times, and invalid values."""

import asyncio
import base64
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core.money import CURRENCIES
from tests.http.wire import exchange
from tests.support.api_lists import list_payments, pages, send
from tests.support.arrange import refusal
from tests.support.rows import STATUSES, write_payments
from tests.support.world import Api


def cursor_of(moment: int, payment_id: UUID | None = None) -> str:
    id_bytes = (payment_id or UUID(int=0)).bytes
    return base64.urlsafe_b64encode(moment.to_bytes(8, "big") + id_bytes).decode()


@pytest.mark.parametrize("moment", [0, 1, 10**15, 2**57])
async def test_a_cursor_with_any_time_is_valid(api: Api, moment: int) -> None:
    await api.create()
    answer = await list_payments(api, cursor=cursor_of(moment, uuid4()))
    assert (answer.status, len(answer.json["data"])) == (200, int(moment == 2**57))


_BAD_TIMES = [
    "",
    "now",
    "2026-11-21",
    "2026-11-21T08:00:00",
    "2026-11-21T08:00Z",
    "2026-13-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-21T24:00:01Z",
    "2026-11-21T08:00:60Z",
    "2026-11-21T08:00:00.Z",
    "2026-11-21T08:00:00+07:60",
    "2026-11-21T08:00:00+7",
    "2026-11-21T08:00:00 0",
    "2026-11-21T08:00:00+25:00",
    "0000-01-01T00:00:00Z",
    "٢٠٢٦-11-21T08:00:00Z",
    "1764000000",
    "\x00",
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("limit", ["", "0", "101", "-1", "1.0", "1e1", " 1", "+1", "١", "0x1", "9" * 400]),
        ("status", ["", "paid", "PAID ", "PAID,FAILED", "\x00"]),
        ("payer_uid", ["", "x" * 256, "a\x00b"]),
        ("created_from", _BAD_TIMES),
        ("created_to", _BAD_TIMES),
        (
            "cursor",
            [
                "",
                "x",
                "====",
                cursor_of(1)[:-1],
                cursor_of(1) + "AAAA",
                cursor_of(2**64 - 1),
                cursor_of(2**63),
                "é" * 32,
                "\x00" * 32,
                "A" * 5_000,
            ],
        ),
    ],
)
async def test_an_invalid_value_is_refused_with_the_name_of_its_field(
    api: Api, name: str, values: list[str]
) -> None:
    for value in values:
        answer = await list_payments(api, **{name: value})
        assert refusal(answer) == (400, "BAD_REQUEST"), value
        assert name in answer.json["message"], value


@pytest.mark.parametrize("code", ["", "EUR", "usd", "USDC", "THB ", "\x00", "X" * 5_000])
async def test_an_unknown_currency_is_refused_as_an_invalid_currency(api: Api, code: str) -> None:
    answer = await list_payments(api, currency=code)
    assert refusal(answer) == (400, "INVALID_CURRENCY")
    assert len(answer.body) < 500


async def test_unknown_parameters_are_ignored(api: Api) -> None:
    payment = await api.create()
    assert await pages(api, page=3, sort="asc", merchant_id=17) == [[payment.json["id"]]]


@pytest.mark.parametrize(
    "time",
    [
        "2026-11-21T08:00:00.010Z",
        "2026-11-21T08:00:00.01Z",
        "2026-11-21T08:00:00.010000Z",
        "2026-11-21t08:00:00.010z",
        "2026-11-21T08:00:00.010+00:00",
        "2026-11-21T15:00:00.010+07:00",
        "2026-11-21T00:30:00.010-07:30",
        "2026-11-21T15:00:00.010+0700",
        "2026-11-21T00:30:00.010-0730",
        "2026-11-21 08:00:00.010Z",
        "2026-11-21T08:00:00.010000000Z",
        "2026-11-21T08:00:00.009000001Z",  # between the times of two payments
        "2026-11-21T08:00:00.009999999999Z",
    ],
)
async def test_a_time_can_have_any_offset_and_an_unescaped_plus(api: Api, time: str) -> None:
    await write_payments(api.world, 20)
    for text in (quote(time), time):  # a `+` in a query is a space
        newer = await send(api, f"created_from={text}")
        older = await send(api, f"created_to={text}")
        assert (len(newer.json["data"]), len(older.json["data"])) == (10, 10)
    between = await send(api, f"created_from={quote(time)}&created_to={quote(time)}")
    assert between.json == {"data": []}


async def test_the_first_and_the_last_representable_time_are_valid(api: Api) -> None:
    payment = await api.create()
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    assert await pages(api, created_from=first, created_to=last) == [[payment.json["id"]]]
    assert await pages(api, created_from=last) == await pages(api, created_to=first) == [[]]
    for late in ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59-00:01"):
        assert await pages(api, created_from=late) == [[]]
    assert await pages(api, created_to="0001-01-01T00:00:00+00:01") == [[]]


async def test_a_leap_second_at_the_end_of_a_utc_day_is_valid(api: Api) -> None:
    payment = await api.create()
    for leap in ("1998-12-31T23:59:60Z", "1999-01-01T06:59:60.5+0700"):
        assert await pages(api, created_from=leap) == [[payment.json["id"]]]
        assert await pages(api, created_to=leap) == [[]]


_NAMES = ["status", "currency", "payer_uid", "created_from", "created_to", "limit", "cursor"]
_GOOD = [*STATUSES, *CURRENCIES, "ann", "1", "100", "2026-11-21T08:00:00Z", cursor_of(10**15)]
_RAW = st.text(st.sampled_from("abcAZ019%&=+;:-._~/?@!$'()*,é٣\\\"<>[]{}|^`"), max_size=40)
_QUOTED = st.text(max_size=40).map(lambda text: quote(text, errors="surrogatepass"))
_VALUES = st.sampled_from(_GOOD).map(quote) | _RAW | _QUOTED | st.integers().map(str)
_PAIRS = st.tuples(st.sampled_from(_NAMES) | _QUOTED | _RAW, _VALUES)
_QUERY = st.lists(_PAIRS, max_size=5).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


@pytest.mark.full
async def test_random_queries_do_not_cause_server_errors(api: Api) -> None:
    await write_payments(api.world, 30)
    loop = asyncio.get_running_loop()
    statuses: set[int] = set()

    async def send_query(query: str) -> int:
        head = f"GET /v1/payments?{query} HTTP/1.1\r\nHost: pay.test\r\nConnection: close\r\n"
        key = f"Authorization: Bearer {api.world.api_key}\r\n\r\n"
        answer = await exchange(api.base, (head + key).encode())
        assert answer is not None
        return answer.status

    @examples(
        max_examples=400,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(query=_QUERY | _RAW)
    def check_query(query: str) -> None:
        # Hypothesis runs in a thread, and the service in this loop.
        status = asyncio.run_coroutine_threadsafe(send_query(query), loop).result(20)
        statuses.add(status)
        assert status in {200, 400}, query

    await asyncio.to_thread(check_query)
    assert statuses == {200, 400}
