"""Test mode: the test merchant, and the separation of test and live routes."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from payintent.accounting import ledger_check_store
from payintent.accounting.ledger_operations import BackfillLedger
from payintent.core.errors import RefusedError
from payintent.core.ids import PAYMENT_LINK, STATEMENT, format_id
from payintent.gateway_accounts.operations import AddAccount
from payintent.http.docs.documents import read_openapi_document
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.merchants.operations import CreateMerchant, SetCallbackUrl, ShowMerchant
from payintent.overview import hourly_figures
from tests.payment_links.link_setup import make_link
from tests.refunds.requests import create_paid
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import BODY, refusal, select, view
from tests.support.merchant_test_mode import make_test_world
from tests.support.operation_examples import add_statement
from tests.support.world import Api, World

#: Every operation that needs a merchant's key, according to the API document.
_OPERATIONS = [
    (method.upper(), path)
    for path, item in read_openapi_document()["paths"].items()
    for method, operation in item.items()
    if isinstance(operation, dict)
    and any("merchantKey" in way for way in operation.get("security", ()))
]
_IDS = re.compile(r"{(\w+)}")
_BODIES = {
    ("POST", "/v1/payment-links"): {"title": "A book", "currency": "THB", "amount": "1590.00"},
    ("POST", "/v1/payments"): BODY,
    ("POST", "/v1/test/clock/advance"): {"seconds": 60},
}
_UNKNOWN = {
    "payment_id": "pay_" + "0" * 22,
    "refund_id": "ref_" + "0" * 22,
    "event_id": "00000000-0000-7000-8000-000000000000",
    "statement_id": "stmt_" + "0" * 22,
    "link_id": "plink_" + "0" * 22,
}


@asynccontextmanager
async def _both(api: Api) -> AsyncIterator[dict[str, Api]]:
    async with Api(api.base, await make_test_world(api.world)) as test:
        yield {"live": api, "test": test}


async def _ids(side: Api) -> dict[str, str]:
    """Pay and refund a payment; return an id of every kind in merchants' routes."""
    created = await create_paid(side)
    refund_response = await refund(side, created, amount="1.00")
    assert refund_response.status == 201
    events = await side.send("GET", "/v1/events", headers=side.bearer())
    [event] = events.json["data"]
    return {
        "payment_id": created.json["id"],
        "refund_id": refund_response.json["id"],
        "event_id": event["id"],
        "statement_id": format_id(STATEMENT, await add_statement(side.world)),
        "link_id": format_id(PAYMENT_LINK, (await make_link(side.world)).id),
    }


async def _ask(side: Api, operation: tuple[str, str], ids: dict[str, str]) -> Any:
    method, path = operation
    options: dict[str, Any] = {"headers": side.bearer() | {"Idempotency-Key": str(uuid4())}}
    if operation in _BODIES:
        options["json"] = _BODIES[operation]
    return await side.send(method, path.format_map(ids), **options)


async def test_no_documented_operation_crosses_from_one_mode_into_the_other(api: Api) -> None:
    async with _both(api) as sides:
        ids = {mode: await _ids(side) for mode, side in sides.items()}
        before = await api.world.rows("SELECT * FROM payment ORDER BY id")
        for mode, other in (("live", "test"), ("test", "live")):
            for operation in _OPERATIONS:
                answer = await _ask(sides[mode], operation, ids[other])
                needs_test = operation[1].startswith("/v1/test/") and mode == "live"
                if _IDS.search(operation[1]) and not needs_test:
                    unknown = await _ask(sides[mode], operation, _UNKNOWN)
                    assert refusal(answer) == (404, "NOT_FOUND"), (mode, operation)
                    assert answer.json == unknown.json, (mode, operation)
                else:
                    assert (answer.status == 403) == needs_test, (mode, operation)
                    assert answer.status < 300 or needs_test, (mode, operation)
                for text in ids[other].values():
                    assert text.encode() not in answer.body, (mode, operation)
        ids_before = [row["id"] for row in before]
        after = await api.world.rows(
            "SELECT * FROM payment WHERE id = ANY($1) ORDER BY id", ids_before
        )
        assert after == before


async def test_ids_of_another_merchant_in_the_other_mode_are_not_found(api: Api) -> None:
    """In the same mode, requests for another merchant's payments or refunds can get a 403."""
    with_id = [operation for operation in _OPERATIONS if _IDS.search(operation[1])]
    async with _both(api) as sides, _strangers(api) as strangers:
        ids = {mode: await _ids(side) for mode, side in sides.items()}
        for mode, other in (("live", "test"), ("test", "live")):
            for operation in with_id:
                if operation[1].startswith("/v1/test/") and mode == "live":
                    continue
                answer = await _ask(strangers[mode], operation, ids[other])
                assert refusal(answer) == (404, "NOT_FOUND"), (mode, operation)
                unknown = await _ask(strangers[mode], operation, _UNKNOWN)
                assert answer.json == unknown.json, (mode, operation)
                same = await _ask(strangers[mode], operation, ids[mode])
                assert same.status in {403, 404}, (mode, operation)


@asynccontextmanager
async def _strangers(api: Api) -> AsyncIterator[dict[str, Api]]:
    """Return both modes of another merchant."""
    world = api.world
    new = await world.perform(CreateMerchant(name="Other Books"))
    test = await world.perform(IssueApiKey(merchant_id=new.merchant.id, test=True))
    live = replace(world, merchant_id=new.merchant.id, api_key=new.api_key)
    other = replace(world, merchant_id=test.merchant_id, api_key=test.api_key)
    async with Api(api.base, live) as live_api, Api(api.base, other) as test_api:
        yield {"live": live_api, "test": test_api}


async def test_a_cursor_from_the_other_mode_lists_only_objects_in_the_keys_mode(api: Api) -> None:
    async with _both(api) as sides:
        for side in sides.values():
            for _ in range(2):
                assert (await refund(side, await create_paid(side), amount="1.00")).status == 201
        for mode, other in (("live", "test"), ("test", "live")):
            for path in ("/v1/payments", "/v1/refunds"):
                theirs = await sides[other].send(
                    "GET", f"{path}?limit=1", headers=sides[other].bearer()
                )
                cursor = theirs.json["next_cursor"]
                assert cursor, path
                page = await sides[mode].send(
                    "GET", f"{path}?cursor={cursor}", headers=sides[mode].bearer()
                )
                own = await sides[mode].send("GET", path, headers=sides[mode].bearer())
                own_ids = {item["id"] for item in own.json["data"]}
                assert {item["id"] for item in page.json.get("data", [])} <= own_ids, (mode, path)


def test_every_kind_of_id_in_the_document_is_covered() -> None:
    assert {name for _, path in _OPERATIONS for name in _IDS.findall(path)} == set(_UNKNOWN)


async def test_a_test_key_reads_the_objects_that_it_created(api: Api) -> None:
    async with _both(api) as sides:
        test = sides["test"]
        ids = await _ids(test)
        assert test.world.api_key.startswith("sk_test_")
        assert (await test.get(ids["payment_id"])).json["merchant_id"] == test.world.merchant_id
        [item] = (await test.send("GET", "/v1/payments", headers=test.bearer())).json["data"]
        assert item["id"] == ids["payment_id"]
        assert (await api.send("GET", "/v1/payments", headers=api.bearer())).json == {"data": []}


async def test_only_the_checkout_of_a_test_payment_is_labelled_as_a_test(api: Api) -> None:
    async with _both(api) as sides:
        marked = {}
        for mode, side in sides.items():
            created = await side.create()
            assert (await view(side, created)).status == 200
            page = await side.send("GET", f"/c/{created.json['checkout_id']}")
            marked[mode] = (
                '<p class="test">Test mode: you won’t be charged</p>' in page.body.decode()
            )
        assert marked == {"live": False, "test": True}


async def test_a_merchant_has_one_test_merchant_and_its_secret_is_shown_when_created(
    world: World,
) -> None:
    first = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    second = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    assert first.merchant_id == second.merchant_id != world.merchant_id
    assert first.callback_secret is not None
    assert second.callback_secret is None
    live = await world.perform(ShowMerchant(merchant_id=world.merchant_id))
    test = await world.perform(ShowMerchant(merchant_id=first.merchant_id))
    assert (test.livemode, test.live_merchant, test.name) == (False, live.id, live.name)
    assert (live.livemode, test.callback_url, test.mail_receipts) == (True, None, False)
    again = await world.perform(IssueApiKey(merchant_id=test.id))  # also by its own id
    assert again.api_key.startswith("sk_test_")
    with pytest.raises(RefusedError, match="use the live merchant"):
        await world.perform(IssueApiKey(merchant_id=test.id, test=True))


async def test_live_and_test_accounts_are_never_mixed(world: World) -> None:
    test = await make_test_world(world)
    new = (await world.perform(CreateMerchant(name="Next", methods="all"))).merchant.id
    offered = {
        merchant: {
            method.account_id
            for method in await world.perform(ListPaymentMethods(merchant_id=merchant))
        }
        for merchant in (world.merchant_id, new, test.merchant_id)
    }
    live, own = {world.account_id}, offered[test.merchant_id]
    assert offered == {world.merchant_id: live, new: live, test.merchant_id: own}
    assert test.account_id in own
    assert len(own - live) == 3  # and the merchant's accounts at the two test gateways
    for merchant, account in (
        (world.merchant_id, test.account_id),
        (test.merchant_id, world.account_id),
    ):
        method = AddPaymentMethod(
            merchant_id=merchant, account_id=account, kind="card", label="C", currencies=["THB"]
        )
        with pytest.raises(RefusedError, match="both be live or both be test"):
            await world.perform(method)
    for merchant, is_test in ((world.merchant_id, True), (test.merchant_id, False)):
        account = AddAccount(
            provider="fake",
            base_url="http://gateway.test",
            credentials={"signing_secret": "s"},
            merchant_id=merchant,
            test=is_test,
        )
        with pytest.raises(RefusedError, match="only have test accounts"):
            await world.perform(account)


async def test_the_operators_figures_exclude_test_payments(api: Api) -> None:
    kinds = "SELECT kind, count FROM hourly_figure WHERE subject = 'currency' ORDER BY kind"
    async with _both(api) as sides:
        for mode, expected in (("test", []), ("live", [("PAID", 1)])):
            await create_paid(sides[mode])
            for set_back in (
                "UPDATE payment SET paid_at = paid_at - interval '10 seconds'",
                "UPDATE capture SET captured_at = captured_at - interval '10 seconds'",
            ):
                await api.world.rows(set_back)
            await api.world.rows(
                "UPDATE figure_mark SET counted_until = counted_until - interval '1 minute'"
            )
            await api.world.rows("DELETE FROM hourly_figure")
            outcomes: list[hourly_figures.OutcomeCount] = []
            while await hourly_figures.count_outcomes(api.world.database, outcomes.extend):
                pass  # a completed hour is listed first
            assert len(outcomes) == 2 * len(expected), mode
            rows = await api.world.rows(kinds)
            assert [(row["kind"], row["count"]) for row in rows] == expected, mode


async def test_the_ledger_excludes_test_payments(api: Api) -> None:
    async with _both(api) as sides:
        for side in sides.values():
            await refund(side, await create_paid(side), amount="1.00")
        assert (await api.world.perform(BackfillLedger())).facts == 0
        rows = await api.world.rows("SELECT DISTINCT merchant_id FROM ledger_entry")
        assert [row["merchant_id"] for row in rows] == [api.world.merchant_id]
        database = api.world.database
        assert await ledger_check_store.find_differences(database) == []


async def _advance(side: Api, seconds: Any) -> Any:
    path = "/v1/test/clock/advance"
    return await side.send("POST", path, json={"seconds": seconds}, headers=side.bearer())


async def _waiting(world: World, merchant_id: int) -> list[Any]:
    """Return all scheduled times of a merchant."""
    return await world.rows(
        """
        SELECT p.id, p.expires_at, s.inquire_at, s.closing_at, r.next_at, d.next_at AS attempt_at
        FROM payment p
        LEFT JOIN session s ON s.payment_id = p.id
        LEFT JOIN refund r ON r.payment_id = p.id
        LEFT JOIN event e ON e.payment_id = p.id
        LEFT JOIN delivery d ON d.event_id = e.id
        WHERE p.merchant_id = $1
        ORDER BY p.id
        """,
        merchant_id,
    )


async def test_advancing_the_test_clock_expires_only_the_test_merchants_payments(api: Api) -> None:
    async with _both(api) as sides:
        test = sides["test"]
        created = {mode: (await side.create()).json["id"] for mode, side in sides.items()}
        assert (await select(test, await test.create())).status == 200
        live_before = await _waiting(api.world, api.world.merchant_id)
        moved = await _advance(test, 1_799)
        assert moved.json == {
            "advanced_seconds": 1_799,
            "moved": {"payments": 2, "sessions": 1, "refunds": 0, "deliveries": 0},
        }
        assert (await test.get(created["test"])).json["status"] == "PENDING"
        assert (await _advance(test, 2)).json["advanced_seconds"] == 1_801
        assert (await test.get(created["test"])).json["status"] == "EXPIRED"
        assert (await api.get(created["live"])).json["status"] == "PENDING"
        assert await _waiting(api.world, api.world.merchant_id) == live_before
        clock = await test.send("GET", "/v1/test/clock", headers=test.bearer())
        assert clock.json == {"advanced_seconds": 1_801}


async def test_advancing_the_test_clock_makes_refunds_and_webhooks_due_earlier(api: Api) -> None:
    async with _both(api) as sides:
        test = sides["test"]
        url = "http://127.0.0.1:1/hook"
        await api.world.perform(
            SetCallbackUrl(merchant_id=test.world.merchant_id, callback_url=url)
        )
        assert (await refund(test, await create_paid(test), amount="1.00")).status == 201
        [before] = await _waiting(api.world, test.world.merchant_id)
        counts = (await _advance(test, 3_600)).json["moved"]
        assert counts == {"payments": 0, "sessions": 0, "refunds": 1, "deliveries": 1}
        [after] = await _waiting(api.world, test.world.merchant_id)
        hour = timedelta(hours=1)
        assert after["next_at"] == before["next_at"] - hour
        assert after["attempt_at"] == before["attempt_at"] - hour
        assert after["expires_at"] == before["expires_at"]  # the payment has ended


async def test_a_test_key_can_advance_the_clock_by_up_to_31_days(
    api: Api,
) -> None:
    async with _both(api) as sides:
        for seconds in (0, -1, 31 * 86_400 + 1, 1.5, "60", None):
            assert refusal(await _advance(sides["test"], seconds)) == (400, "BAD_REQUEST"), seconds
        assert (await _advance(sides["test"], 31 * 86_400)).status == 200
        assert refusal(await _advance(api, 60)) == (403, "FORBIDDEN")
        [row] = await api.world.rows("SELECT merchant_id FROM test_clock")
        assert row["merchant_id"] == sides["test"].world.merchant_id
