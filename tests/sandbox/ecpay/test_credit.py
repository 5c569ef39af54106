"""The actions after a card payment depend on its closing status."""

import pytest

from tests.sandbox.ecpay.emulator_setup import UNREFUNDABLE, Shop

AUTHORISED, TO_BE_CLOSED, CLOSED = "已授權", "要關帳", "已關帳"
WITHDRAWN, CANCELLED = "操作取消", "已取消"


async def list_return_codes(
    shop: Shop, trade: dict[str, str], *actions: tuple[str, int]
) -> list[str]:
    return [(await shop.act(trade, action, amount))["RtnCode"] for action, amount in actions]


async def get_closing_status(shop: Shop, trade: dict[str, str]) -> str:
    return (await shop.detail(trade))["RtnValue"]["status"]


async def get_refunded_amount(shop: Shop, trade: dict[str, str]) -> int:
    return (await shop.buyer.trade(trade["TradeNo"]))["given_back"]


async def close_day(shop: Shop, trade: dict[str, str]) -> None:
    await shop.buyer.call(f"/_ecpay/trades/{trade['TradeNo']}/close", {})


async def test_an_authorised_payment_can_be_cancelled_in_full(shop: Shop) -> None:
    trade = await shop.pay_order()
    assert await get_closing_status(shop, trade) == AUTHORISED
    assert await list_return_codes(shop, trade, ("N", 1590)) == ["1"]
    assert await get_closing_status(shop, trade) == CANCELLED
    assert await get_refunded_amount(shop, trade) == 1590


@pytest.mark.parametrize(("action", "amount"), [("R", 1590), ("R", 1), ("N", 1), ("E", 1590)])
async def test_an_authorised_payment_cannot_be_refunded_or_partly_cancelled(
    shop: Shop, action: str, amount: int
) -> None:
    trade = await shop.pay_order()
    assert "1" not in await list_return_codes(shop, trade, (action, amount))
    assert await get_refunded_amount(shop, trade) == 0
    assert await get_closing_status(shop, trade) == AUTHORISED


async def test_a_payment_to_be_closed_can_be_partly_refunded_or_withdrawn(
    shop: Shop,
) -> None:
    trade = await shop.pay_order()
    assert await list_return_codes(shop, trade, ("C", 1590)) == ["1"]
    assert await get_closing_status(shop, trade) == TO_BE_CLOSED
    assert "1" not in await list_return_codes(shop, trade, ("N", 1590), ("R", 1590))
    assert await get_refunded_amount(shop, trade) == 0
    assert await list_return_codes(shop, trade, ("E", 1590)) == ["1"]
    assert await get_closing_status(shop, trade) == WITHDRAWN
    assert await list_return_codes(shop, trade, ("N", 1590)) == ["1"]
    part = await shop.pay_order()
    assert await list_return_codes(shop, part, ("C", 1590), ("R", 590)) == ["1", "1"]
    assert await get_refunded_amount(shop, part) == 590


async def test_a_closed_payment_can_be_refunded_in_parts_up_to_its_amount(shop: Shop) -> None:
    trade = await shop.pay_order()
    await close_day(shop, trade)
    assert await get_closing_status(shop, trade) == CLOSED
    assert await list_return_codes(shop, trade, ("R", 590), ("R", 1000)) == ["1", "1"]
    assert "1" not in await list_return_codes(shop, trade, ("R", 1))
    assert await get_refunded_amount(shop, trade) == 1590


async def test_an_action_needs_the_right_trade_number_and_a_valid_amount(shop: Shop) -> None:
    trade = await shop.pay_order()
    stranger = trade | {"TradeNo": "1"}
    assert "1" not in await list_return_codes(shop, stranger, ("N", 1590))
    assert "1" not in await list_return_codes(shop, trade, ("X", 1590), ("N", -1590))
    assert await get_refunded_amount(shop, trade) == 0


async def test_some_payments_cannot_be_refunded(shop: Shop) -> None:
    trade = await shop.pay_order(UNREFUNDABLE)
    assert "1" not in await list_return_codes(shop, trade, ("N", 1590))
    assert await list_return_codes(shop, trade, ("C", 1590)) == ["1"]
    assert "1" not in await list_return_codes(shop, trade, ("R", 1))


async def test_details_need_the_check_code_the_amount_and_the_authorisation_number(
    shop: Shop,
) -> None:
    trade = await shop.pay_order()
    assert (await shop.detail(trade))["RtnMsg"] == ""
    assert (await shop.detail(trade, CreditCheckCode="1"))["RtnMsg"] == "error"
    assert (await shop.detail(trade, CreditAmount="1"))["RtnMsg"] == "error"
    assert (await shop.detail(trade, CreditRefundId="1"))["RtnMsg"] == "error_nopay"
