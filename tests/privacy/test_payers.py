"""A payer's export contains all of the person's payments, and no access tokens."""

import json
import re
from typing import Any

import msgspec

from payintent.operators.operation import to_json_value
from payintent.privacy.operations import ExportPayer
from tests.refunds.refund_setup import create_paid_payment, request_refund
from tests.support.world import World

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def _export(world: World, **changes: Any) -> tuple[list[Any], str]:
    export = ExportPayer(merchant_id=world.merchant_id, payer_uid="buyer-7", **changes)
    text = msgspec.json.encode(to_json_value(await world.perform(export))).decode()
    return json.loads(text), text


async def test_an_export_contains_all_payments_of_a_payer_but_no_checkout_ids(
    world: World,
) -> None:
    payer = {"payer_uid": "buyer-7", "payer_email": "seven@example.com"}
    urls = {"return_url": "https://shop.test/A-7", "cancel_url": "https://shop.test/cart"}
    payments = [
        await create_paid_payment(world, **payer, **urls, metadata='{"order_id": "A-7"}')
        for _ in range(3)
    ]
    await world.create(payer_uid="buyer-8", payer_email="eight@example.com")
    await request_refund(world, payments[0], "10", reason="a page is missing")
    exported, text = await _export(world)
    assert len(exported) == 3
    first = exported[0]
    assert (first["payer_email"], first["metadata"]) == ("seven@example.com", {"order_id": "A-7"})
    assert first | urls == first
    assert [refund["reason"] for refund in first["refunds"]] == ["a page is missing"]
    assert [session["provider"] for session in first["sessions"]] == ["fake"]
    assert [event["type"] for event in first["events"]] == ["payment.completed"]
    assert "eight@example.com" not in text
    assert not any(payment.checkout_id in text for payment in payments)
    page, _ = await _export(world, limit=2)
    rest, _ = await _export(world, after=page[-1]["id"])
    assert [item["id"] for item in (*page, *rest)] == [item["id"] for item in exported]


async def test_an_export_uses_the_formats_of_the_api(world: World) -> None:
    payment = await create_paid_payment(world, payer_uid="buyer-7")
    await request_refund(world, payment, "10.50")
    [exported], text = await _export(world)
    [session], [refund] = exported["sessions"], exported["refunds"]
    assert (exported["amount"], refund["amount"]) == ("1590.00", "10.50")
    for moment in (session["opened_at"], session["ended_at"], refund["created_at"]):
        assert _MOMENT.fullmatch(moment), moment
    assert "+00:00" not in text


async def test_an_export_excludes_payments_with_the_same_payer_uid_at_another_merchant(
    world: World,
) -> None:
    await create_paid_payment(world, payer_uid="buyer-7")
    second_merchant_id = (await world.add_merchant()).merchant.id
    await world.rows(
        "UPDATE payment SET merchant_id = $1 WHERE payer_uid = 'buyer-7'", second_merchant_id
    )
    await create_paid_payment(world, payer_uid="buyer-7")
    assert len((await _export(world))[0]) == 1
