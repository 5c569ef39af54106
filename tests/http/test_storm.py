"""Thousands of concurrent creation requests with the same key create one payment.

`STORM_CREATES=10000` selects the long form.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from payintent.runtime.settings import Settings
from tests.http.wire import WireAnswer
from tests.support.arrange import count, document, post
from tests.support.installed import add_simulator_method
from tests.support.storm import PATIENCE_S, api_process, callers, many_files, storm
from tests.support.world import Api, World

pytestmark = [pytest.mark.e2e, pytest.mark.full]
_TRIES_MAX = 20
_CREATES = int(os.environ.get("STORM_CREATES", "2000"))


@pytest.fixture
def sockets() -> Iterator[int]:
    with many_files() as found:
        yield found


@pytest.fixture
async def paid_in_baht(settings: Settings, world: World) -> None:
    await add_simulator_method(settings, world.merchant_id)


@pytest.fixture
def ports(
    request: pytest.FixtureRequest,
    settings: Settings,
    paid_in_baht: None,
    tmp_path: Path,
    sockets: int,
) -> Iterator[list[int]]:
    """This many API processes."""
    with ExitStack() as stack:
        yield [stack.enter_context(api_process(settings, tmp_path)) for _ in range(request.param)]


def create(api_key: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST /v1/payments HTTP/1.1\r\nHost: pay.test\r\nAuthorization: Bearer {api_key}\r\n"
        f"Idempotency-Key: {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def settled(ports: Sequence[int], requests: list[bytes], sockets: int) -> list[WireAnswer]:
    """Send all requests at once, and repeat those that are told to retry later."""
    done: list[WireAnswer] = []
    for _ in range(_TRIES_MAX):
        answers = await storm(ports, requests, sockets)
        assert {answer.status for answer in answers} <= {201, 409}
        later = [one for one in answers if one.status == 409 and one.json["code"] == "CONFLICT"]
        assert all(one.headers["retry-after"] == "1" for one in later)
        done += [one for one in answers if one not in later]
        if not later:
            return done
        requests = requests[: len(later)]  # they are all the same, or all sorts are among them
    raise AssertionError("it is never done")


def only_payment(answers: list[WireAnswer]) -> str:
    """Check that all responses are identical to the first; return the payment's id."""
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) <= 1
    return answers[0].json["id"]


@pytest.mark.parametrize("ports", [1], indirect=True)
async def test_thousands_of_creates_at_once_with_one_key_make_one_payment(
    world: World, ports: list[int], sockets: int
) -> None:
    requests = [create(world.api_key, str(uuid4()), document())] * _CREATES
    answers = await settled(ports, requests, sockets)
    assert len(answers) == _CREATES
    only_payment(answers)
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


@pytest.mark.parametrize("ports", [2], indirect=True)
async def test_two_processes_and_two_merchants_make_one_payment_each(
    settings: Settings, world: World, ports: list[int], sockets: int
) -> None:
    other, key = await world.add_merchant(), str(uuid4())
    await add_simulator_method(settings, other.merchant.id)
    mine, theirs = (create(item, key, document()) for item in (world.api_key, other.api_key))
    answers = await settled(ports, [mine, mine, theirs, theirs] * 500, sockets)
    by_merchant = [
        [one for one in answers if one.json["merchant_id"] == merchant_id]
        for merchant_id in (world.merchant_id, other.merchant.id)
    ]
    assert len({only_payment(some) for some in by_merchant}) == 2
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 2


@pytest.mark.parametrize("ports", [2], indirect=True)
async def test_of_two_bodies_under_one_key_one_wins_and_the_other_is_told(
    world: World, ports: list[int], sockets: int
) -> None:
    key = str(uuid4())
    first, second = (
        create(world.api_key, key, document(payer_uid=json.dumps(payer))) for payer in ("a", "b")
    )
    answers = await settled(ports, [first, first, second, second] * 500, sockets)
    refused = Counter(one.json["code"] for one in answers if one.status != 201)
    assert list(refused) == ["IDEMPOTENCY_CONFLICT"]
    only_payment([one for one in answers if one.status == 201])
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


@pytest.mark.parametrize("ports", [1], indirect=True)
async def test_callers_that_hang_up_spoil_nothing_for_the_others(
    world: World, ports: list[int], sockets: int
) -> None:
    asked = create(world.api_key, str(uuid4()), document())
    gone, patient = await callers(ports, 100), await callers(ports, 100)
    for item in gone:
        item.send([asked])
    waiting = [one.send([asked]) for one in patient]
    await asyncio.sleep(0)
    for entry in gone:
        entry.hang_up()
    async with asyncio.timeout(PATIENCE_S):
        answers = [found for [found] in await asyncio.gather(*waiting)]
    only_payment(answers)
    for element in patient:
        element.hang_up()
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


async def test_a_first_request_whose_connection_dies_spoils_nothing_for_the_others(
    api: Api,
) -> None:
    await api.create()  # so that statements are prepared
    key, body = str(uuid4()), document()
    holder = await api.world.open_connection()
    async with holder.transaction():
        await holder.execute("LOCK TABLE checkout IN SHARE MODE")
        sent = [asyncio.create_task(post(api, body, Idempotency_Key=key)) for _ in range(30)]
        waiting = []
        async with asyncio.timeout(PATIENCE_S):
            while not waiting:
                waiting = await api.world.rows(
                    "SELECT pid FROM pg_locks WHERE relation = 'checkout'::regclass AND NOT granted"
                )
        assert len(waiting) == 1  # all others wait for this one, without a connection
        await holder.execute("SELECT pg_terminate_backend($1)", waiting[0]["pid"])
    await holder.close()
    answers = await asyncio.gather(*sent)
    for answer in answers:
        assert answer.status in {201, 409, 503}
        assert answer.status == 201 or 1 <= int(answer.headers["Retry-After"]) <= 5
    again = [await post(api, body, Idempotency_Key=key) for _ in range(2)]
    assert {answer.body for answer in again if answer.status == 201} == {again[1].body}
    assert await count(api) == 2
