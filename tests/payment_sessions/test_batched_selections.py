"""Selections that share a transaction have separate outcomes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from payintent.core.errors import ErrorCode, InvalidTextError, RefusedError, StorageUnavailableError
from payintent.db.database import Database
from payintent.db.driver import connect_as
from payintent.db.pool import ConnectionPool
from payintent.gateways.port import NotContacted, OutcomeUnknown, SessionRejected
from payintent.merchants.model import Quote
from payintent.payment_sessions import open_session
from payintent.payment_sessions.open_session import (
    SELECTIONS_MAX,
    CreateSessionResult,
    NewSelection,
    SelectedSession,
    SessionOpener,
)
from payintent.payments import store as payment_store
from payintent.payments.model import Payment, Session
from tests.support.database_proxy import open_freezable_proxy
from tests.support.fakes import accept, captured
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World, patient


async def quote_of(world: World) -> Quote:
    """Return a quote that fits every payment of 1590.00 THB."""
    return (await world.select(await world.create())).session.quote


def selection(payment: Payment, quote: Quote, **changes: Any) -> NewSelection:
    return replace(NewSelection(payment.id, quote, None, None), **changes)


def start(opener: SessionOpener, leading: Any, *others: Any) -> list[asyncio.Task[Any]]:
    """Start the other selections in one batch, which fills while the leading selection runs."""
    run: Callable[[Any], Awaitable[Any]] = (
        opener.store
        if isinstance(leading, NewSelection)
        else lambda item: opener.apply_response(*item)
    )

    async def work(item: Any) -> Any:
        return await run(item)

    return [asyncio.create_task(work(item)) for item in (leading, *others)]


async def store(world: World, quote: Quote, selections: Sequence[NewSelection]) -> list[Any]:
    """Store sessions in one batch; return the sessions or their errors."""
    leading = selection(await world.create(), quote)
    first, *tasks = start(world.service.session_opener, leading, *selections)
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


async def opening(world: World, quote: Quote, count: int) -> list[Session]:
    """Store this many sessions, each of a separate payment."""
    payments = [await world.create() for _ in range(count)]
    return await store(world, quote, [selection(payment, quote) for payment in payments])


async def answer(
    world: World, quote: Quote, answers: Sequence[tuple[Session, CreateSessionResult]]
) -> list[SelectedSession]:
    """Apply gateway responses in one batch."""
    [leading] = await opening(world, quote, 1)
    first, *tasks = start(world.service.session_opener, (leading, created(leading)), *answers)
    await first
    return await asyncio.gather(*tasks)


def created(session: Session) -> CreateSessionResult:
    class Request:
        session_id = session.id

    return accept(Request)  # type: ignore[arg-type]


async def transactions(world: World, table: str, ids: Sequence[UUID]) -> int:
    """Count the transactions that last wrote the rows."""
    rows = await world.rows(
        f"SELECT DISTINCT xmin::text FROM {table} WHERE id = ANY($1::uuid[])",
        list(ids),
    )
    return len(rows)


def refused_with(outcome: object) -> ErrorCode:
    assert isinstance(outcome, RefusedError)
    return outcome.code


async def test_a_batch_has_the_same_results_as_separate_selections_in_one_transaction(
    world: World,
) -> None:
    quote = await quote_of(world)
    payments = [await world.create() for _ in range(5)]
    expected = [
        selection(payment, quote, return_url=f"https://shop.test/{n}", payer_email=f"{n}@x.test")
        for n, payment in enumerate(payments)
    ]
    stored = await store(world, quote, expected)
    assert [session.payment_id for session in stored] == [payment.id for payment in payments]
    assert await transactions(world, "session", [session.id for session in stored]) == 1
    for n, (payment, session) in enumerate(zip(payments, stored, strict=True)):
        row = await world.session(session.id)
        assert (row["life"], row["number"], row["return_url"]) == (
            "opening",
            1,
            f"https://shop.test/{n}",
        )
        alone = await world.session((await world.select(await world.create())).session.id)
        differs = {"id", "payment_id", "life", "reference", "next_action", "return_url"}
        differs |= {"opened_at", "inquire_at"}
        assert {name: row[name] for name in set(row.keys()) - differs} == {
            name: alone[name] for name in set(alone.keys()) - differs
        }
        assert (await world.read(payment)).payment.payer_email == f"{n}@x.test"


async def test_each_selection_of_a_batch_has_its_own_result(world: World) -> None:
    quote = await quote_of(world)
    ended = await world.cancelled()
    good, elapsed, used_up, under_way, last = [await world.create() for _ in range(5)]
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", elapsed.id)
    for _ in range(SELECTIONS_MAX):
        await world.select(used_up)
    [other] = await store(world, quote, [selection(under_way, quote)])
    payments = (good, ended, elapsed, used_up, under_way, last)
    emails = [f"{n}@x.test" for n in range(6)]
    outcomes = await store(
        world,
        quote,
        [
            selection(payment, quote, payer_email=email)
            for payment, email in zip(payments, emails, strict=True)
        ],
    )
    assert [refused_with(outcome) for outcome in outcomes[1:5]] == [
        ErrorCode.INVALID_CHECKOUT_STATE,
        ErrorCode.CHECKOUT_EXPIRED,
        ErrorCode.RATE_LIMITED,
        ErrorCode.CONFLICT,
    ]
    assert [outcomes[n].payment_id for n in (0, 5)] == [good.id, last.id]
    assert await transactions(world, "session", [outcomes[0].id, outcomes[5].id]) == 1
    kept = [(await world.read(payment)).payment.payer_email for payment in payments]
    assert kept == [emails[0], *[payment.payer_email for payment in payments[1:5]], emails[5]]
    rows = await world.rows("SELECT id FROM session WHERE payment_id = $1", under_way.id)
    assert [row["id"] for row in rows] == [other.id]


async def test_a_bad_row_in_a_batch_does_not_affect_the_rest(world: World) -> None:
    quote = await quote_of(world)
    payments = [await world.create() for _ in range(3)]
    urls = ("https://shop.test/", "https://shop.test/\0", "https://shop.test/")
    outcomes = await store(
        world,
        quote,
        [
            selection(payment, quote, return_url=url)
            for payment, url in zip(payments, urls, strict=True)
        ],
    )
    assert isinstance(outcomes[1], InvalidTextError)
    assert [outcomes[n].payment_id for n in (0, 2)] == [payments[0].id, payments[2].id]
    assert await world.rows("SELECT FROM session WHERE payment_id = $1", payments[1].id) == []


async def test_two_selections_of_one_payment_never_share_a_batch(world: World) -> None:
    quote = await quote_of(world)
    payment, other = await world.create(), await world.create()
    twice = selection(payment, quote)
    *outcomes, last = await store(world, quote, [twice, twice, selection(other, quote)])
    [refused] = [outcome for outcome in outcomes if not isinstance(outcome, Session)]
    assert refused_with(refused) is ErrorCode.CONFLICT
    assert last.payment_id == other.id


async def test_a_locked_payment_does_not_delay_other_payments(
    world: World,
) -> None:
    quote = await quote_of(world)
    payments = [await world.create() for _ in range(4)]
    database = Database(patient(world.database.settings), id_generator=world.id_generator)
    opener = SessionOpener(database)
    async with hold_transaction(
        world, lambda tx: payment_store.lock(tx, [payments[1].id])
    ) as first:
        leading, *tasks = start(
            opener, *(selection(payment, quote) for payment in (payments[3], *payments[:3]))
        )
        await asyncio.gather(leading, tasks[0], tasks[2])
        await wait_until_blocked(world, tasks[1])
        await first.commit()
        assert (await tasks[1]).payment_id == payments[1].id
    await database.close()


async def test_each_gateway_response_of_a_batch_has_its_own_result(world: World) -> None:
    quote = await quote_of(world)
    sessions = await opening(world, quote, 7)
    right, rejected, silent, unsent, paid, elapsed, closing = sessions
    await world.rows(
        "UPDATE session SET life = 'closing', closing_at = clock() WHERE id = $1", closing.id
    )
    await world.report(await payment_of(world, paid), paid.id, captured(159000))
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", elapsed.payment_id)
    selected = await answer(
        world,
        quote,
        [
            (right, created(right)),
            (rejected, SessionRejected(detail="no")),
            (silent, OutcomeUnknown(detail="no answer")),
            (unsent, NotContacted(detail="no address")),
            (paid, created(paid)),
            (elapsed, created(elapsed)),
            (closing, SessionRejected(detail="a late no")),
        ],
    )
    assert [item.payment.id for item in selected] == [session.payment_id for session in sessions]
    assert [item.payment.session_id == item.session.id for item in selected] == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
    ]
    rows = [await world.session(session.id) for session in sessions]
    assert [(row["life"], row["outcome"]) for row in rows] == [
        ("open", None),
        ("ended", "rejected"),
        ("closing", None),
        ("ended", "not_contacted"),
        ("ended", "captured"),
        ("closing", None),
        ("closing", None),
    ]
    assert [row["reference"] for row in rows] == [
        f"ref-{right.id}",
        None,
        None,
        None,
        f"ref-{paid.id}",
        f"ref-{elapsed.id}",
        None,
    ]
    assert (selected[0].payment.status, selected[0].session.status) == ("PROCESSING", "open")
    ids = [session.id for session in (right, rejected, silent, unsent, paid, elapsed)]
    assert await transactions(world, "session", ids) == 1


async def test_a_batch_closes_the_sessions_that_its_selections_replace(world: World) -> None:
    before = [await world.select(await world.create()) for _ in range(3)]
    quote = before[0].session.quote
    stored = await store(world, quote, [selection(item.payment, quote) for item in before])
    selected = await answer(world, quote, [(session, created(session)) for session in stored])
    assert [item.payment.session_id for item in selected] == [session.id for session in stored]
    assert [(await world.session(item.session.id))["life"] for item in before] == 3 * ["closing"]
    assert [(await world.session(session.id))["number"] for session in stored] == [2, 2, 2]


async def test_a_lost_commit_response_fails_every_selection_and_closes_committed_sessions(
    world: World,
) -> None:
    quote = await quote_of(world)
    payments = [await world.create() for _ in range(3)]
    async with (
        open_freezable_proxy(world.database.settings.database_url) as proxy,
        hold_transaction(world, lambda tx: payment_store.lock(tx, [payments[0].id])) as first,
    ):
        pool = ConnectionPool(lambda: connect_as(proxy.url, {}, pooled=False), 2, PATIENCE_S)
        settings, ids = world.database.settings, world.id_generator
        opener = SessionOpener(Database(settings, pool=pool, id_generator=ids))
        tasks = start(opener, *(selection(payment, quote) for payment in payments))
        proxy.freeze_after(b"COMMIT")
        await proxy.holding()
        await first.commit()
        pool.terminate()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [StorageUnavailableError] * 3
        proxy.thaw()
        await pool.close()
    rows = await world.rows(
        "SELECT payment_id, life FROM session WHERE payment_id = ANY($1::uuid[])",
        [payment.id for payment in payments],
    )
    assert {row["payment_id"] for row in rows} >= {payment.id for payment in payments[1:]}
    assert {row["life"] for row in rows} == {"opening"}  # the inquiry loop queries them


async def test_a_buyer_who_disconnects_during_the_batch_does_not_affect_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_session, "LOCK_TIMEOUT_MS", 60_000)  # still a single batch
    quote = await quote_of(world)
    payments = [await world.create() for _ in range(4)]
    async with hold_transaction(
        world, lambda tx: payment_store.lock(tx, [payments[1].id])
    ) as first:
        leading, *tasks = start(
            world.service.session_opener, *(selection(payment, quote) for payment in payments)
        )
        await leading
        await wait_until_blocked(world, tasks[2])
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        await first.commit()
        stored = [await task for task in (tasks[0], tasks[2])]
    assert [session.payment_id for session in stored] == [payments[1].id, payments[3].id]
    assert await transactions(world, "session", [session.id for session in stored]) == 1


async def payment_of(world: World, session: Session) -> Payment:
    [row] = await world.rows("SELECT checkout_id FROM payment WHERE id = $1", session.payment_id)
    checkout_payment = await world.service.payment_lookup.find_checkout_payment(row["checkout_id"])
    return checkout_payment.payment
