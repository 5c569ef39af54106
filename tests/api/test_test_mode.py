"""Test mode: a merchant's test side, and that no route leads from one mode into the other."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from payintent.domain.errors import RefusedError
from payintent.operations.accounts import AddAccount
from payintent.operations.keys import IssueApiKey
from payintent.operations.merchants import CreateMerchant, ShowMerchant
from payintent.operations.payment_methods import AddPaymentMethod, ListPaymentMethods
from payintent.storage import hourly_figures, ledger_check
from tests.api.arrange import BODY, refusal, view
from tests.api.refunding import ask as refund
from tests.api.refunding import paid
from tests.support.world import Api, World

_DOCUMENT = yaml.safe_load(
    (Path(__file__).parents[2] / "docs/openapi.yaml").read_text(encoding="utf-8")
)
#: Every operation that needs a merchant's key, as the API document has them.
_OPERATIONS = [
    (method.upper(), path)
    for path, item in _DOCUMENT["paths"].items()
    for method, operation in item.items()
    if isinstance(operation, dict)
    and any("merchantKey" in way for way in operation.get("security", ()))
]
_IDS = re.compile(r"{(\w+)}")
_UNKNOWN = {
    "payment_id": "pay_" + "0" * 22,
    "refund_id": "ref_" + "0" * 22,
    "event_id": "00000000-0000-7000-8000-000000000000",
}


async def _test_world(world: World) -> World:
    """Return the test side of the world's merchant, with a test account of its gateway."""
    account = AddAccount(
        provider="fake",
        base_url="http://gateway.test",
        credentials={"signing_secret": world.signing_secret},
        test=True,
    )
    account_id = (await world.perform(account)).id
    issued = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    methods = await world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    return replace(
        world,
        merchant_id=issued.merchant_id,
        api_key=issued.api_key,
        account_id=account_id,
        card=next(method.id for method in methods if method.kind == "card"),
    )


@asynccontextmanager
async def _both(api: Api) -> AsyncIterator[dict[str, Api]]:
    async with Api(api.base, await _test_world(api.world)) as test:
        yield {"live": api, "test": test}


async def _ids(side: Api) -> dict[str, str]:
    """Pay and refund a payment; return an id of every kind that merchants' routes take."""
    created = await paid(side)
    asked = await refund(side, created, amount="1.00")
    assert asked.status == 201
    events = await side.send("GET", "/v1/events", headers=side.bearer())
    [event] = events.json["data"]
    return {
        "payment_id": created.json["id"],
        "refund_id": asked.json["id"],
        "event_id": event["id"],
    }


async def _ask(side: Api, operation: tuple[str, str], ids: dict[str, str]) -> Any:
    method, path = operation
    options: dict[str, Any] = {"headers": side.bearer() | {"Idempotency-Key": str(uuid4())}}
    if operation == ("POST", "/v1/payments"):
        options["json"] = BODY
    return await side.send(method, path.format_map(ids), **options)


async def test_no_operation_of_the_document_leads_from_one_mode_into_the_other(api: Api) -> None:
    async with _both(api) as sides:
        ids = {mode: await _ids(side) for mode, side in sides.items()}
        before = await api.world.rows("SELECT * FROM payment ORDER BY id")
        for mode, other in (("live", "test"), ("test", "live")):
            for operation in _OPERATIONS:
                answer = await _ask(sides[mode], operation, ids[other])
                if _IDS.search(operation[1]):
                    unknown = await _ask(sides[mode], operation, _UNKNOWN)
                    assert refusal(answer) == (404, "NOT_FOUND"), (mode, operation)
                    assert answer.json == unknown.json, (mode, operation)
                else:
                    assert answer.status < 300, (mode, operation)
                for text in ids[other].values():
                    assert text.encode() not in answer.body, (mode, operation)
        known = [row["id"] for row in before]
        after = await api.world.rows("SELECT * FROM payment WHERE id = ANY($1) ORDER BY id", known)
        assert after == before


def test_every_kind_of_id_in_the_document_is_tried() -> None:
    assert {name for _, path in _OPERATIONS for name in _IDS.findall(path)} == set(_UNKNOWN)


async def test_a_test_key_reads_what_it_made(api: Api) -> None:
    async with _both(api) as sides:
        test = sides["test"]
        ids = await _ids(test)
        assert test.world.api_key.startswith("sk_test_")
        assert (await test.get(ids["payment_id"])).json["merchant_id"] == test.world.merchant_id
        [listed] = (await test.send("GET", "/v1/payments", headers=test.bearer())).json["data"]
        assert listed["id"] == ids["payment_id"]
        assert (await api.send("GET", "/v1/payments", headers=api.bearer())).json == {"data": []}


async def test_the_checkout_of_a_test_payment_says_so_and_a_live_one_does_not(api: Api) -> None:
    async with _both(api) as sides:
        marked = {}
        for mode, side in sides.items():
            created = await side.create()
            assert (await view(side, created)).status == 200
            page = await side.send("GET", f"/c/{created.json['checkout_id']}")
            marked[mode] = '<p class="test">TEST: no money moves</p>' in page.body.decode()
        assert marked == {"live": False, "test": True}


async def test_a_merchant_has_one_test_side_and_its_secret_is_shown_when_it_is_made(
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
    again = await world.perform(IssueApiKey(merchant_id=test.id))  # by its own number too
    assert again.api_key.startswith("sk_test_")
    with pytest.raises(RefusedError, match="name the live merchant"):
        await world.perform(IssueApiKey(merchant_id=test.id, test=True))


async def test_live_and_test_accounts_are_never_mixed(world: World) -> None:
    test = await _test_world(world)
    new = (await world.perform(CreateMerchant(name="Next", methods="all"))).merchant.id
    offered = {
        merchant: {
            method.account_id
            for method in await world.perform(ListPaymentMethods(merchant_id=merchant))
        }
        for merchant in (world.merchant_id, new, test.merchant_id)
    }
    live, own = {world.account_id}, {test.account_id}
    assert offered == {world.merchant_id: live, new: live, test.merchant_id: own}
    for merchant, account in (
        (world.merchant_id, test.account_id),
        (test.merchant_id, world.account_id),
    ):
        method = AddPaymentMethod(
            merchant_id=merchant, account_id=account, kind="card", label="C", currencies=["THB"]
        )
        with pytest.raises(RefusedError, match="both be live, or both test"):
            await world.perform(method)
    for merchant, is_test in ((world.merchant_id, True), (test.merchant_id, False)):
        account = AddAccount(
            provider="fake",
            base_url="http://gateway.test",
            credentials={"signing_secret": "s"},
            merchant_id=merchant,
            test=is_test,
        )
        with pytest.raises(RefusedError, match="test accounts alone"):
            await world.perform(account)


async def test_no_test_money_is_in_the_operators_figures(api: Api) -> None:
    kinds = "SELECT kind, count FROM hourly_figure WHERE subject = 'currency' ORDER BY kind"
    async with _both(api) as sides:
        for mode, expected in (("test", []), ("live", [("PAID", 1)])):
            await paid(sides[mode])
            await api.world.rows("UPDATE payment SET paid_at = paid_at - interval '10 seconds'")
            await api.world.rows(
                "UPDATE figure_mark SET counted_until = counted_until - interval '1 minute'"
            )
            await api.world.rows("DELETE FROM hourly_figure")
            await hourly_figures.count_next(api.world.service.database)
            counted = await api.world.rows(kinds)
            assert [(row["kind"], row["count"]) for row in counted] == expected, mode


async def test_no_test_money_is_in_the_ledger(api: Api) -> None:
    async with _both(api) as sides:
        for side in sides.values():
            await refund(side, await paid(side), amount="1.00")
        rows = await api.world.rows("SELECT DISTINCT merchant_id FROM ledger_entry")
        assert [row["merchant_id"] for row in rows] == [api.world.merchant_id]
        database = api.world.service.database
        assert await ledger_check.find_differences(database) == []
