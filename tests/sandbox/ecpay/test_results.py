"""Results are sent until they are acknowledged, in ECPay's format, and found by inquiries."""

import re

import pytest
from aiohttp import web

from tests.sandbox.ecpay.emulator_setup import (
    DEARER,
    DECLINED,
    OTHER,
    SILENT,
    SIMULATED,
    TWICE,
    UNCONFIRMED,
    Shop,
    mac,
)

BACK = "https://shop.example/return?x=1"


async def test_a_paid_order_has_the_same_fields_in_the_notice_and_the_inquiry(shop: Shop) -> None:
    trade = await shop.pay_order(CustomField1="abc")
    [notice] = await shop.ear.wait_for(1)
    assert notice["CheckMacValue"] == mac(notice)
    assert (notice["RtnCode"], notice["RtnMsg"], notice["SimulatePaid"]) == ("1", "交易成功", "0")
    assert trade["TradeStatus"] == "1"
    assert trade["CheckMacValue"] == mac(trade)
    shared = ("MerchantID", "MerchantTradeNo", "TradeNo", "TradeAmt", "CustomField1", "gwsr")
    assert [notice[name] for name in shared] == [trade[name] for name in shared]
    assert notice["TradeAmt"] == "1590"


async def test_card_details_are_omitted_unless_they_are_requested(shop: Shop) -> None:
    trade = await shop.pay_order(NeedExtraPaidInfo=None)
    [notice] = await shop.ear.wait_for(1)
    assert {"gwsr", "card4no"} & (set(notice) | set(trade)) == set()


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=503),
        web.Response(body=b'"1|OK"'),
        web.Response(body=b"1|ok"),
        web.Response(body=b"1|OK\n"),
        web.Response(body=b"1|OK", status=201),
    ],
)
async def test_a_notice_without_a_valid_acknowledgement_is_repeated(
    shop: Shop, answer: web.Response
) -> None:
    shop.ear.answers.append(answer)
    await shop.pay_order()
    first, second = await shop.ear.wait_for(2)
    assert (first["RtnMsg"], second["RtnMsg"]) == ("交易成功", "paid")
    assert first["TradeNo"] == second["TradeNo"]
    assert second["CheckMacValue"] == mac(second) != first["CheckMacValue"]


async def test_a_notice_has_at_most_five_attempts(shop: Shop) -> None:
    shop.ear.answers.extend(web.Response(status=500) for _ in range(5))
    await shop.pay_order()
    await shop.ear.wait_for(5)
    second_trade = await shop.pay_order()
    notices = await shop.ear.wait_for(6)
    assert notices[5]["TradeNo"] == second_trade["TradeNo"]


async def test_an_acknowledged_notice_can_be_repeated(shop: Shop) -> None:
    await shop.pay_order(TWICE)
    notices = await shop.ear.wait_for(2)
    assert [notice["RtnMsg"] for notice in notices] == ["交易成功", "paid"]


async def test_a_silent_payment_is_found_only_by_an_inquiry(shop: Shop) -> None:
    assert (await shop.pay_order(SILENT))["TradeStatus"] == "1"
    second_trade = await shop.pay_order()
    [notice] = await shop.ear.wait_for(1)
    assert notice["TradeNo"] == second_trade["TradeNo"]


async def test_a_declined_order_cannot_be_paid_again(shop: Shop) -> None:
    order = await shop.place_order()
    number = order["MerchantTradeNo"]
    await shop.buyer.pay(number, DECLINED)
    [notice] = await shop.ear.wait_for(1)
    assert notice["RtnCode"] == "10100248"
    assert (await shop.inquire(number))["TradeStatus"] == "10200095"
    assert "only one attempt" in await shop.buyer.pay(number)


async def test_a_simulated_payment_sends_a_notice_and_leaves_the_order_unpaid(shop: Shop) -> None:
    trade = await shop.pay_order(SIMULATED)
    [notice] = await shop.ear.wait_for(1)
    assert (notice["RtnCode"], notice["SimulatePaid"]) == ("1", "1")
    assert trade["TradeStatus"] == "0"
    await shop.buyer.pay(trade["MerchantTradeNo"])
    assert (await shop.inquire(trade["MerchantTradeNo"]))["TradeStatus"] == "1"


async def test_the_first_notice_can_be_unconfirmed(shop: Shop) -> None:
    await shop.pay_order(UNCONFIRMED)
    first, second = await shop.ear.wait_for(2)
    assert (first["RtnCode"], second["RtnCode"]) == ("10300066", "1")


async def test_the_paid_amount_can_exceed_the_ordered_amount(shop: Shop) -> None:
    assert (await shop.pay_order(DEARER))["TradeAmt"] == "1591"


async def test_a_signed_form_returns_the_buyer_to_the_shop(shop: Shop) -> None:
    order = await shop.place_order(OrderResultURL=BACK)
    page = await shop.buyer.pay(order["MerchantTradeNo"])
    assert f'action="{BACK}"' in page
    inputs: list[tuple[str, str]] = re.findall(r'name="(\w+)" value="([^"]*)"', page)
    fields = dict(inputs)
    assert fields["CheckMacValue"] == mac(fields)
    assert (fields["RtnCode"], fields["RtnMsg"]) == ("1", "Succeeded")


async def test_without_a_result_page_the_buyer_gets_only_a_link(shop: Shop) -> None:
    order = await shop.place_order(ClientBackURL=BACK)
    page = await shop.buyer.pay(order["MerchantTradeNo"])
    assert f'href="{BACK}"' in page
    assert "<form" not in page


async def test_an_unknown_trade_is_not_found(shop: Shop) -> None:
    trade = await shop.inquire("nobody")
    assert (trade["TradeStatus"], trade["MerchantTradeNo"]) == ("10200047", "nobody")
    assert trade["CheckMacValue"] == mac(trade)


async def test_an_order_without_a_card_is_unpaid(shop: Shop) -> None:
    order = await shop.place_order()
    assert (await shop.inquire(order["MerchantTradeNo"]))["TradeStatus"] == "0"


async def test_an_inquiry_needs_a_signature_and_a_recent_timestamp(shop: Shop) -> None:
    trade = await shop.pay_order()
    number = trade["MerchantTradeNo"]
    assert "TradeStatus" not in await shop.inquire(number, TimeStamp="1700000000")
    forged = {"MerchantID": OTHER.merchant_id, "MerchantTradeNo": number, "TimeStamp": "1"}
    text = await shop.buyer.call("/Cashier/QueryTradeInfo/V5", forged)
    assert text == "10200073|CheckMacValue Error"


async def test_an_unknown_card_number_is_refused(shop: Shop) -> None:
    order = await shop.place_order()
    page = await shop.buyer.pay(order["MerchantTradeNo"], "1234")
    assert "not one of the test cards" in page
