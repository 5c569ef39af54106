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
from tests.support.installed_methods import add_simulator_method
from tests.support.storm import PATIENCE_S, api_process, callers, many_files, storm
from tests.support.world import Api, World

pytestmark = [pytest.mark.e2e, pytest.mark.full]
_TRIES_MAX = 20
_CREATES = int(os.environ.get("STORM_CREATES", "2000"))


@pytest.fixture
def sockets() -> Iterator[int]:
    with many_files() as sockets_max:
        yield sockets_max


@pytest.fixture
async def baht_method(settings: Settings, world: World) -> None:
    await add_simulator_method(settings, world.merchant_id)


@pytest.fixture
def ports(
    request: pytest.FixtureRequest,
    settings: Settings,
    baht_method: None,
    tmp_path: Path,
    sockets: int,
) -> Iterator[list[int]]:
    """Start the requested number of API processes, and return their ports."""
    with ExitStack() as stack:
        yield [stack.enter_context(api_process(settings, tmp_path)) for _ in range(request.param)]


def create(api_key: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST /v1/payments HTTP/1.1\r\nHost: pay.test\r\nAuthorization: Bearer {api_key}\r\n"
        f"Idempotency-Key: {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_until_settled(
    ports: Sequence[int], requests: list[bytes], sockets: int
) -> list[WireAnswer]:
    """Send all requests at once, and repeat a request if its response asks for a retry."""
    final: list[WireAnswer] = []
    for _ in range(_TRIES_MAX):
        answers = await storm(ports, requests, sockets)
        assert {answer.status for answer in answers} <= {201, 409}
        retries = [
            item for item in answers if item.status == 409 and item.json["code"] == "CONFLICT"
        ]
        assert all(item.headers["retry-after"] == "1" for item in retries)
        final += [item for item in answers if item not in retries]
        if not retries:
            return final
        requests = requests[: len(retries)]  # they are identical or alternate
    raise AssertionError(f"not settled after {_TRIES_MAX} tries")


def check_single_payment(answers: list[WireAnswer]) -> str:
    """Check that all responses are identical to the first; return the payment's id."""
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) <= 1
    return answers[0].json["id"]


@pytest.mark.parametrize("ports", [1], indirect=True)
async def test_thousands_of_concurrent_creates_with_the_same_key_create_one_payment(
    world: World, ports: list[int], sockets: int
) -> None:
    requests = [create(world.api_key, str(uuid4()), document())] * _CREATES
    answers = await send_until_settled(ports, requests, sockets)
    assert len(answers) == _CREATES
    check_single_payment(answers)
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


@pytest.mark.parametrize("ports", [2], indirect=True)
async def test_two_processes_create_one_payment_for_each_of_two_merchants(
    settings: Settings, world: World, ports: list[int], sockets: int
) -> None:
    second_merchant, key = await world.add_merchant(), str(uuid4())
    await add_simulator_method(settings, second_merchant.merchant.id)
    first, second = (
        create(item, key, document()) for item in (world.api_key, second_merchant.api_key)
    )
    answers = await send_until_settled(ports, [first, first, second, second] * 500, sockets)
    by_merchant = [
        [answer for answer in answers if answer.json["merchant_id"] == merchant_id]
        for merchant_id in (world.merchant_id, second_merchant.merchant.id)
    ]
    assert len({check_single_payment(group) for group in by_merchant}) == 2
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 2


@pytest.mark.parametrize("ports", [2], indirect=True)
async def test_two_bodies_with_the_same_key_create_one_payment_and_cause_conflicts(
    world: World, ports: list[int], sockets: int
) -> None:
    key = str(uuid4())
    first, second = (
        create(world.api_key, key, document(payer_uid=json.dumps(payer))) for payer in ("a", "b")
    )
    answers = await send_until_settled(ports, [first, first, second, second] * 500, sockets)
    codes = Counter(answer.json["code"] for answer in answers if answer.status != 201)
    assert list(codes) == ["IDEMPOTENCY_CONFLICT"]
    check_single_payment([answer for answer in answers if answer.status == 201])
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


@pytest.mark.parametrize("ports", [1], indirect=True)
async def test_clients_that_disconnect_do_not_affect_other_clients(
    world: World, ports: list[int], sockets: int
) -> None:
    request = create(world.api_key, str(uuid4()), document())
    impatient, patient = await callers(ports, 100), await callers(ports, 100)
    for client in impatient:
        client.send([request])
    responses = [client.send([request]) for client in patient]
    await asyncio.sleep(0)
    for client in impatient:
        client.hang_up()
    async with asyncio.timeout(PATIENCE_S):
        answers = [answer for [answer] in await asyncio.gather(*responses)]
    check_single_payment(answers)
    for client in patient:
        client.hang_up()
    [row] = await world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


async def test_a_first_request_with_a_lost_connection_does_not_affect_the_rest(
    api: Api,
) -> None:
    await api.create()  # prepares the statements
    key, body = str(uuid4()), document()
    holder = await api.world.open_connection()
    async with holder.transaction():
        await holder.execute("LOCK TABLE checkout IN SHARE MODE")
        creates = [asyncio.create_task(post(api, body, Idempotency_Key=key)) for _ in range(30)]
        backends = []
        async with asyncio.timeout(PATIENCE_S):
            while not backends:
                backends = await api.world.rows(
                    "SELECT pid FROM pg_locks WHERE relation = 'checkout'::regclass AND NOT granted"
                )
        assert len(backends) == 1  # the rest wait for this request without a connection
        await holder.execute("SELECT pg_terminate_backend($1)", backends[0]["pid"])
    await holder.close()
    answers = await asyncio.gather(*creates)
    for answer in answers:
        assert answer.status in {201, 409, 503}
        assert answer.status == 201 or 1 <= int(answer.headers["Retry-After"]) <= 5
    replays = [await post(api, body, Idempotency_Key=key) for _ in range(2)]
    assert {answer.body for answer in replays if answer.status == 201} == {replays[1].body}
    assert await count(api) == 2
