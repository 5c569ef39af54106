"""Results are sent until they are acknowledged, in ECPay's format, and found by inquiries."""

import re

import pytest
from aiohttp import web

from tests.sandbox.ecpay.running import (
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


async def test_a_paid_order_is_told_and_found_in_the_same_words(shop: Shop) -> None:
    trade = await shop.paid(CustomField1="abc")
    [notice] = await shop.ear.wait_for(1)
    assert notice["CheckMacValue"] == mac(notice)
    assert (notice["RtnCode"], notice["RtnMsg"], notice["SimulatePaid"]) == ("1", "交易成功", "0")
    assert trade["TradeStatus"] == "1"
    assert trade["CheckMacValue"] == mac(trade)
    shared = ("MerchantID", "MerchantTradeNo", "TradeNo", "TradeAmt", "CustomField1", "gwsr")
    assert [notice[name] for name in shared] == [trade[name] for name in shared]
    assert notice["TradeAmt"] == "1590"


async def test_without_extra_information_nothing_is_told_of_the_card(shop: Shop) -> None:
    trade = await shop.paid(NeedExtraPaidInfo=None)
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
async def test_whatever_is_no_acknowledgement_is_told_again_as_paid(
    shop: Shop, answer: web.Response
) -> None:
    shop.ear.answers.append(answer)
    await shop.paid()
    first, second = await shop.ear.wait_for(2)
    assert (first["RtnMsg"], second["RtnMsg"]) == ("交易成功", "paid")
    assert first["TradeNo"] == second["TradeNo"]
    assert second["CheckMacValue"] == mac(second) != first["CheckMacValue"]


async def test_after_five_tries_nobody_is_told_any_more(shop: Shop) -> None:
    shop.ear.answers.extend(web.Response(status=500) for _ in range(5))
    await shop.paid()
    await shop.ear.wait_for(5)
    other = await shop.paid()
    notices = await shop.ear.wait_for(6)
    assert notices[5]["TradeNo"] == other["TradeNo"]


async def test_a_result_can_be_told_twice_though_it_was_acknowledged(shop: Shop) -> None:
    await shop.paid(TWICE)
    notices = await shop.ear.wait_for(2)
    assert [notice["RtnMsg"] for notice in notices] == ["交易成功", "paid"]


async def test_a_silent_payment_is_found_by_an_inquiry_alone(shop: Shop) -> None:
    assert (await shop.paid(SILENT))["TradeStatus"] == "1"
    other = await shop.paid()
    [notice] = await shop.ear.wait_for(1)
    assert notice["TradeNo"] == other["TradeNo"]


async def test_a_declined_card_uses_the_order_up(shop: Shop) -> None:
    order = await shop.ordered()
    number = order["MerchantTradeNo"]
    await shop.buyer.pay(number, DECLINED)
    [notice] = await shop.ear.wait_for(1)
    assert notice["RtnCode"] == "10100248"
    assert (await shop.inquire(number))["TradeStatus"] == "10200095"
    assert "only one attempt" in await shop.buyer.pay(number)


async def test_a_simulated_payment_is_told_and_pays_nothing(shop: Shop) -> None:
    trade = await shop.paid(SIMULATED)
    [notice] = await shop.ear.wait_for(1)
    assert (notice["RtnCode"], notice["SimulatePaid"]) == ("1", "1")
    assert trade["TradeStatus"] == "0"
    await shop.buyer.pay(trade["MerchantTradeNo"])
    assert (await shop.inquire(trade["MerchantTradeNo"]))["TradeStatus"] == "1"


async def test_a_result_can_be_unconfirmed_at_first(shop: Shop) -> None:
    await shop.paid(UNCONFIRMED)
    first, second = await shop.ear.wait_for(2)
    assert (first["RtnCode"], second["RtnCode"]) == ("10300066", "1")


async def test_more_than_was_ordered_can_be_taken(shop: Shop) -> None:
    assert (await shop.paid(DEARER))["TradeAmt"] == "1591"


async def test_the_buyer_is_brought_back_by_a_signed_form(shop: Shop) -> None:
    order = await shop.ordered(OrderResultURL=BACK)
    page = await shop.buyer.pay(order["MerchantTradeNo"])
    assert f'action="{BACK}"' in page
    found: list[tuple[str, str]] = re.findall(r'name="(\w+)" value="([^"]*)"', page)
    fields = dict(found)
    assert fields["CheckMacValue"] == mac(fields)
    assert (fields["RtnCode"], fields["RtnMsg"]) == ("1", "Succeeded")


async def test_without_a_result_page_there_is_a_link_at_most(shop: Shop) -> None:
    order = await shop.ordered(ClientBackURL=BACK)
    page = await shop.buyer.pay(order["MerchantTradeNo"])
    assert f'href="{BACK}"' in page
    assert "<form" not in page


async def test_a_trade_that_nobody_has_brought_is_not_found(shop: Shop) -> None:
    found = await shop.inquire("nobody")
    assert (found["TradeStatus"], found["MerchantTradeNo"]) == ("10200047", "nobody")
    assert found["CheckMacValue"] == mac(found)


async def test_an_order_without_a_card_is_unpaid(shop: Shop) -> None:
    order = await shop.ordered()
    assert (await shop.inquire(order["MerchantTradeNo"]))["TradeStatus"] == "0"


async def test_an_inquiry_must_be_signed_and_fresh(shop: Shop) -> None:
    trade = await shop.paid()
    number = trade["MerchantTradeNo"]
    assert "TradeStatus" not in await shop.inquire(number, TimeStamp="1700000000")
    forged = {"MerchantID": OTHER.merchant_id, "MerchantTradeNo": number, "TimeStamp": "1"}
    text = await shop.buyer.call("/Cashier/QueryTradeInfo/V5", forged)
    assert text == "10200073|CheckMacValue Error"


async def test_a_number_that_is_no_card_is_refused(shop: Shop) -> None:
    order = await shop.ordered()
    page = await shop.buyer.pay(order["MerchantTradeNo"], "1234")
    assert "not one of the test cards" in page
