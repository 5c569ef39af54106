"""The actions after a card payment depend on its closing status."""

import pytest

from tests.sandbox.ecpay.running import UNREFUNDABLE, Shop

AUTHORISED, TO_BE_CLOSED, CLOSED = "已授權", "要關帳", "已關帳"
WITHDRAWN, CANCELLED = "操作取消", "已取消"


async def done(shop: Shop, trade: dict[str, str], *actions: tuple[str, int]) -> list[str]:
    return [(await shop.act(trade, action, amount))["RtnCode"] for action, amount in actions]


async def stands(shop: Shop, trade: dict[str, str]) -> str:
    return (await shop.detail(trade))["RtnValue"]["status"]


async def given_back(shop: Shop, trade: dict[str, str]) -> int:
    return (await shop.buyer.trade(trade["TradeNo"]))["given_back"]


async def close_day(shop: Shop, trade: dict[str, str]) -> None:
    await shop.buyer.call(f"/_ecpay/trades/{trade['TradeNo']}/close", {})


async def test_an_authorised_payment_is_given_up_as_a_whole(shop: Shop) -> None:
    trade = await shop.paid()
    assert await stands(shop, trade) == AUTHORISED
    assert await done(shop, trade, ("N", 1590)) == ["1"]
    assert await stands(shop, trade) == CANCELLED
    assert await given_back(shop, trade) == 1590


@pytest.mark.parametrize(("action", "amount"), [("R", 1590), ("R", 1), ("N", 1), ("E", 1590)])
async def test_what_does_not_fit_an_authorised_payment_is_refused(
    shop: Shop, action: str, amount: int
) -> None:
    trade = await shop.paid()
    assert "1" not in await done(shop, trade, (action, amount))
    assert await given_back(shop, trade) == 0
    assert await stands(shop, trade) == AUTHORISED


async def test_before_it_is_closed_a_part_is_refunded_and_the_whole_withdrawn(
    shop: Shop,
) -> None:
    trade = await shop.paid()
    assert await done(shop, trade, ("C", 1590)) == ["1"]
    assert await stands(shop, trade) == TO_BE_CLOSED
    assert "1" not in await done(shop, trade, ("N", 1590), ("R", 1590))
    assert await given_back(shop, trade) == 0
    assert await done(shop, trade, ("E", 1590)) == ["1"]
    assert await stands(shop, trade) == WITHDRAWN
    assert await done(shop, trade, ("N", 1590)) == ["1"]
    part = await shop.paid()
    assert await done(shop, part, ("C", 1590), ("R", 590)) == ["1", "1"]
    assert await given_back(shop, part) == 590


async def test_a_closed_payment_is_refunded_in_parts_up_to_the_whole(shop: Shop) -> None:
    trade = await shop.paid()
    await close_day(shop, trade)
    assert await stands(shop, trade) == CLOSED
    assert await done(shop, trade, ("R", 590), ("R", 1000)) == ["1", "1"]
    assert "1" not in await done(shop, trade, ("R", 1))
    assert await given_back(shop, trade) == 1590


async def test_an_action_must_name_the_trade_and_an_amount(shop: Shop) -> None:
    trade = await shop.paid()
    stranger = trade | {"TradeNo": "1"}
    assert "1" not in await done(shop, stranger, ("N", 1590))
    assert "1" not in await done(shop, trade, ("X", 1590), ("N", -1590))
    assert await given_back(shop, trade) == 0


async def test_some_payments_cannot_be_given_back(shop: Shop) -> None:
    trade = await shop.paid(UNREFUNDABLE)
    assert "1" not in await done(shop, trade, ("N", 1590))
    assert await done(shop, trade, ("C", 1590)) == ["1"]
    assert "1" not in await done(shop, trade, ("R", 1))


async def test_details_need_the_merchants_check_code_and_the_authorisations_number(
    shop: Shop,
) -> None:
    trade = await shop.paid()
    assert (await shop.detail(trade))["RtnMsg"] == ""
    assert (await shop.detail(trade, CreditCheckCode="1"))["RtnMsg"] == "error"
    assert (await shop.detail(trade, CreditAmount="1"))["RtnMsg"] == "error"
    assert (await shop.detail(trade, CreditRefundId="1"))["RtnMsg"] == "error_nopay"
