"""Idempotency keys when API keys rotate, connections fail, requests compete, or keys expire."""

import asyncio
from uuid import uuid4

from payintent.fraud.model import FraudRuleKind, RiskLevel
from payintent.fraud.operations import AddFraudRule, RemoveFraudRule
from payintent.merchants.access_operations import IssueApiKey, ListApiKeys, RevokeApiKey
from tests.support.arrange import cancel, count, payment_of, refusal
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api

DAY_S = 24 * 3600
_REPLAYED = "Idempotency-Replayed"


async def _rotate(api: Api) -> str:
    """Replace the API key with a new key; return the old key."""
    old = api.world.api_key
    [api_key] = await api.world.perform(ListApiKeys(merchant_id=api.world.merchant_id))
    new = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, name="second"))
    await api.world.perform(RevokeApiKey(public_id=api_key.public_id))
    api.world.api_key = new.api_key
    return old


async def test_a_creation_is_replayed_with_the_merchants_next_api_key(api: Api) -> None:
    key = str(uuid4())
    first = await api.create(key)
    old = await _rotate(api)
    replay = await api.create(key)
    assert (replay.status, replay.body, replay.headers[_REPLAYED]) == (201, first.body, "true")
    assert refusal(await api.create(key, amount="1.00")) == (409, "IDEMPOTENCY_CONFLICT")
    api.world.api_key = old
    assert refusal(await api.create(key)) == (401, "UNAUTHORIZED")
    assert await count(api) == 1


async def test_a_cancellation_is_replayed_with_the_merchants_next_api_key(api: Api) -> None:
    created, key = await api.create(), str(uuid4())
    first = await cancel(api, created, key)
    await _rotate(api)
    replay = await cancel(api, created, key)
    assert (replay.status, replay.body, replay.headers[_REPLAYED]) == (200, first.body, "true")
    assert await api.world.events(await payment_of(api, created)) == ["payment.cancelled"]


async def test_the_key_of_a_cancellation_expires_after_a_day_by_the_database_clock(
    api: Api,
) -> None:
    created, key = await api.create(), str(uuid4())
    assert (await cancel(api, created, key)).status == 200
    await api.world.move_clock(DAY_S - 60)
    assert (await cancel(api, created, key)).headers[_REPLAYED] == "true"
    await api.world.move_clock(DAY_S + 1)
    assert refusal(await cancel(api, created, key)) == (409, "INVALID_PAYMENT_STATE")
    answer = await cancel(api, await api.create(), key)
    assert (answer.status, answer.headers.get(_REPLAYED)) == (200, None)


async def test_a_denial_is_replayed_for_a_day_even_if_its_rule_is_removed(api: Api) -> None:
    key = str(uuid4())
    rule = await api.world.perform(
        AddFraudRule(
            kind=FraudRuleKind.PAYER, value="eve", code="BLOCKED", level=RiskLevel.HIGH, score=90
        )
    )
    first = await api.create(key, payer_uid="eve")
    assert first.json["fds"]["outcome"] == "DENY"
    await api.world.perform(RemoveFraudRule(rule_id=rule.id))
    await api.world.move_clock(DAY_S - 60)
    replay = await api.create(key, payer_uid="eve")
    assert (replay.status, replay.body, replay.headers[_REPLAYED]) == (200, first.body, "true")
    assert refusal(await api.create(key, payer_uid="ann")) == (409, "IDEMPOTENCY_CONFLICT")
    await api.world.move_clock(DAY_S + 1)
    assert (await api.create(key, payer_uid="eve")).status == 201


async def test_a_cancellation_changes_nothing_if_its_connection_is_lost_before_the_commit(
    api: Api,
) -> None:
    created, key = await api.create(), str(uuid4())
    holder = await api.world.open_connection()
    async with holder.transaction():
        await holder.execute("LOCK TABLE event IN SHARE MODE")
        cancelling = asyncio.create_task(cancel(api, created, key))
        async with asyncio.timeout(PATIENCE_S):
            waiters = []
            while not waiters:
                waiters = await api.world.rows(
                    "SELECT pid FROM pg_locks WHERE relation = 'event'::regclass AND NOT granted"
                )
        await holder.execute("SELECT pg_terminate_backend($1)", waiters[0]["pid"])
        assert refusal(await cancelling) == (503, "SERVICE_UNAVAILABLE")
    await holder.close()
    payment = await payment_of(api, created)
    assert (payment.status, await api.world.events(payment)) == ("PENDING", [])
    answer = await cancel(api, created, key)
    assert (answer.status, answer.headers.get(_REPLAYED)) == (200, None)


async def test_concurrent_cancellations_with_the_same_key_cancel_once(api: Api) -> None:
    created, key = await api.create(), str(uuid4())
    answers = await asyncio.gather(*(cancel(api, created, key) for _ in range(50)))
    assert {(answer.status, answer.body) for answer in answers} == {
        (200, b'{"status":"cancelled"}')
    }
    assert sum(_REPLAYED not in answer.headers for answer in answers) == 1
    assert await api.world.events(await payment_of(api, created)) == ["payment.cancelled"]


async def test_the_key_of_a_refused_concurrent_cancellation_can_be_reused(api: Api) -> None:
    created, keys = await api.create(), [str(uuid4()), str(uuid4())]
    answers = await asyncio.gather(*(cancel(api, created, key) for key in keys))
    by_status: dict[int, tuple[str, Answer]] = {
        answer.status: (key, answer) for key, answer in zip(keys, answers, strict=True)
    }
    assert sorted(by_status) == [200, 409]
    unused_key, refused_answer = by_status[409]
    assert refusal(refused_answer) == (409, "INVALID_PAYMENT_STATE")
    assert (await cancel(api, await api.create(), unused_key)).status == 200
