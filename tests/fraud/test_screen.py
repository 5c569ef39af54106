"""The restrictions and rules cached by processes, and the retention of denials."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
import pytest

from payintent.core.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.db.database import Database
from payintent.fraud import store as fraud_store
from payintent.fraud.model import (
    FraudDenial,
    FraudDeniedError,
    FraudRuleKind,
    FraudSubject,
    RiskLevel,
)
from payintent.fraud.operations import AddFraudRule, RemoveFraudRule
from payintent.fraud.policy_cache import PolicyCache
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction
from payintent.payments import idempotency_store
from payintent.payments import new_store as new_payments
from payintent.payments.create import OPERATION
from payintent.payments.idempotency_store import FirstRequest
from payintent.payments.new_store import NewPayment
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent.worker import prune
from tests.support.race_staging import (
    hold_transaction,
    open_with_short_lock_timeout,
    wait_until_blocked,
)
from tests.support.world import World, patient

_DAY_S = 24 * 3600


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(world: World, clock: Clock) -> PolicyCache:
    """The cached rules of a process that refreshes them every second."""
    return PolicyCache(world.database, 1.0, clock)


def _payer(value: str = "buyer-1") -> AddFraudRule:
    return AddFraudRule(kind=FraudRuleKind.PAYER, value=value)


def _buyer(world: World) -> FraudSubject:
    return FraudSubject(merchant_id=world.merchant_id, payer_uid="buyer-1")


async def test_a_process_applies_a_new_rule_after_the_cache_expires(
    world: World, known: PolicyCache, clock: Clock
) -> None:
    assert not await known.get_rules()
    rule = await world.perform(_payer())
    clock.now += 0.999
    assert not await known.get_rules()
    clock.now += 0.001
    assert (await known.get_rules()).evaluate(_buyer(world)) is not None
    await world.perform(RemoveFraudRule(rule_id=rule.id))
    clock.now += 1
    assert not await known.get_rules()


async def test_a_process_applies_a_new_restriction_after_the_cache_expires(
    world: World, known: PolicyCache, clock: Clock
) -> None:
    assert (await known.get_restrictions()).onramp == {"KR"}
    await world.perform(AddRestriction(type=RestrictionType.CRYPTO, country="DE"))
    assert (await known.get_restrictions()).crypto == frozenset()
    clock.now += 1
    assert (await known.get_restrictions()).crypto == {"DE"}


async def test_unchanged_rules_are_not_read_again(
    world: World, known: PolicyCache, clock: Clock
) -> None:
    first = await world.perform(_payer())
    book = await known.get_rules()
    clock.now += 1
    assert await known.get_rules() is book
    await world.perform(_payer("buyer-2"))
    await world.perform(
        RemoveFraudRule(rule_id=first.id)
    )  # the number of rules is the same as before
    clock.now += 1
    assert await known.get_rules() is not book
    assert (await known.get_rules()).evaluate(_buyer(world)) is None


async def test_concurrent_requests_share_a_single_read_of_the_rules(
    world: World, known: PolicyCache
) -> None:
    await world.perform(_payer())
    books = await asyncio.gather(*(known.get_rules() for _ in range(20)))
    assert books[0]
    assert all(book is books[0] for book in books)


async def test_concurrent_requests_share_a_failed_read(world: World) -> None:
    brief = world.service.settings.model_copy(update={"database_acquire_timeout_s": 0.1})
    ended = Database(brief)
    await ended.close()
    policy_cache = PolicyCache(ended, 1.0)
    results = await asyncio.gather(
        *(policy_cache.get_rules() for _ in range(20)), return_exceptions=True
    )
    assert {type(item) for item in results} == {StorageUnavailableError}
    assert len({id(item) for item in results}) == 1


async def test_a_read_continues_if_the_first_caller_is_cancelled(
    world: World, known: PolicyCache
) -> None:
    leaving = asyncio.create_task(known.get_rules())
    staying = asyncio.create_task(known.get_rules())
    await asyncio.sleep(0)
    leaving.cancel()
    assert not await staying
    assert not await known.get_rules()


@pytest.fixture
async def another(world: World) -> AsyncIterator[World]:
    """Another process of the same service."""
    service = await open_service(world.service.settings, {"fake": world.gateway})
    yield World(**{**vars(world), "service": service})
    await service.close()


async def test_a_rule_added_by_one_process_applies_in_all_processes(
    world: World, another: World
) -> None:
    payment = await world.create()
    await another.service.fraud_screening.screen_checkout(payment, None, None)
    await world.perform(_payer())
    with pytest.raises(FraudDeniedError):
        await another.service.fraud_screening.screen_checkout(payment, None, None)


async def test_a_payers_second_create_waits_until_the_first_is_counted(world: World) -> None:
    """Staged: the second create waits for the first, which is uncommitted, and counts it."""
    await world.perform(AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=1, window_s=60))
    digest = world.service.encryption.digest(f"payer:{world.merchant_id}:buyer-1")
    async with hold_transaction(world, lambda tx: fraud_store.lock_counter(tx, digest)) as first:
        second = asyncio.create_task(world.service.fraud_screening.create_payment(world.request()))
        await wait_until_blocked(world, second)
        await world.create()
        await first.commit()
        with pytest.raises(FraudDeniedError):
            await second


async def test_a_locked_counter_is_not_reported_as_a_key_in_use(world: World) -> None:
    await world.perform(AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=1, window_s=60))
    digest = world.service.encryption.digest(f"payer:{world.merchant_id}:buyer-1")
    async with (
        hold_transaction(world, lambda tx: fraud_store.lock_counter(tx, digest)),
        open_with_short_lock_timeout(world) as service,
    ):
        with pytest.raises(LockTimeoutError):
            await service.fraud_screening.create_payment(world.request())


async def test_a_denial_waits_for_a_create_with_the_same_key_and_replays_it(world: World) -> None:
    request = world.request()
    ids = world.id_generator
    new = NewPayment(ids.new_id(), ids.new_checkout_id(), request)
    async with hold_transaction(world, lambda tx: new_payments.create(tx, new)) as first:
        await world.perform(_payer())
        denied = asyncio.create_task(world.service.fraud_screening.create_payment(request))
        await wait_until_blocked(world, denied)
        await first.commit()
        created = await denied
    assert (created.payment.id, created.replayed) == (new.id, True)
    assert await _kept(world) == (0, 0)


async def test_a_create_waits_for_a_denial_with_the_same_key_and_replays_it(world: World) -> None:
    """Two processes; one of them does not have the rule yet."""
    request = world.request()
    rule = await world.perform(_payer("somebody"))
    denial = FraudDenial(rule_id=rule.id, code="X", level=RiskLevel.LOW, score=1, rule="payer:1")
    first = FirstRequest(
        request_hash=request.request_hash,
        denial=msgspec.json.encode(denial).decode(),
    )
    take = (world.merchant_id, OPERATION, request.key, first)
    async with hold_transaction(
        world, lambda tx: idempotency_store.claim_key(tx, *take)
    ) as denying:
        creating = asyncio.create_task(world.service.fraud_screening.create_payment(request))
        await wait_until_blocked(world, creating)
        await denying.commit()
        with pytest.raises(FraudDeniedError) as denied:
            await creating
    assert (denied.value.denial, denied.value.replayed) == (denial, True)
    [row] = await world.rows("SELECT count(*) AS payments FROM payment")
    assert row["payments"] == 0


async def test_the_number_of_rules_is_limited_to_what_a_process_can_read(
    world: World, known: PolicyCache
) -> None:
    await world.rows(
        "INSERT INTO fraud_rule (kind, value, code, level, score) "
        "SELECT 'PAYER', 'listed-' || n, 'X', 'LOW', 1 FROM generate_series(1, $1::int) n",
        fraud_store.RULES_MAX - 1,
    )
    last = await world.perform(_payer())
    with pytest.raises(RefusedError) as refused:
        await world.perform(_payer("one too many"))
    assert refused.value.code is ErrorCode.CONFLICT
    assert (await known.get_rules()).evaluate(
        _buyer(world)
    ) is not None  # the newest rule applies as well
    await world.perform(RemoveFraudRule(rule_id=last.id))
    await world.perform(_payer("another"))


async def _decide(world: World, many: int) -> None:
    rule = await world.perform(_payer(str(uuid4())))
    denial = FraudDenial(rule_id=rule.id, code="X", level=RiskLevel.LOW, score=1, rule="payer:1")
    for _ in range(many):
        id_generator = world.id_generator
        await fraud_store.record_denial(
            world.database, id_generator.new_id(), world.merchant_id, None, denial
        )


async def _attempt(world: World, many: int) -> None:
    for number in range(many):
        await fraud_store.add_attempt(world.database, bytes([number]), world.merchant_id)


async def _kept(world: World) -> tuple[int, int]:
    [row] = await world.rows(
        "SELECT (SELECT count(*) FROM fraud_decision) AS decisions, "
        "(SELECT count(*) FROM buyer_attempt) AS attempts"
    )
    return row["decisions"], row["attempts"]


async def test_denials_and_attempts_are_deleted_after_their_retention_period(world: World) -> None:
    short, long = [
        await world.perform(
            AddFraudRule(kind=FraudRuleKind.ADDRESS_VELOCITY, count_max=1, window_s=window_s)
        )
        for window_s in (60, 3600)
    ]
    await _decide(world, 2)
    await _attempt(world, 3)
    await world.move_clock(3500)
    assert await prune(world.service.database, world.service.settings) is False
    assert await _kept(world) == (2, 3)
    await world.move_clock(3700)
    await _attempt(world, 1)
    await prune(world.service.database, world.service.settings)
    assert await _kept(world) == (2, 1)
    await world.perform(RemoveFraudRule(rule_id=long.id))
    await world.move_clock(3830)
    await prune(world.service.database, world.service.settings)
    assert await _kept(world) == (2, 0)
    await world.perform(RemoveFraudRule(rule_id=short.id))
    await _attempt(world, 1)
    await prune(world.service.database, world.service.settings)
    assert await _kept(world) == (2, 0)  # not counted by any rule
    await world.move_clock(90 * _DAY_S - 60)
    await prune(world.service.database, world.service.settings)
    assert await _kept(world) == (2, 0)
    await world.move_clock(90 * _DAY_S + 3600)
    await prune(world.service.database, world.service.settings)
    assert await _kept(world) == (0, 0)


@pytest.mark.parametrize(
    ("decided", "attempted", "plenty"), [(5, 1, True), (1, 5, True), (5, 5, True), (3, 3, False)]
)
async def test_pruning_continues_immediately_if_a_batch_was_full(
    world: World, decided: int, attempted: int, plenty: bool
) -> None:
    service = world.service
    small = service.settings.model_copy(update={"prune_batch_max": 4})
    await _decide(world, decided)
    await _attempt(world, attempted)
    await world.move_clock(91 * _DAY_S)
    assert await prune(service.database, small) is plenty
    assert await _kept(world) == (max(0, decided - 4), max(0, attempted - 4))
