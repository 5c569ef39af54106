"""The emulator accepts and rejects the same orders as ECPay."""

import pytest

from payintent_sandbox.emulators.ecpay import checkmac
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, OTHER, Shop, mac, signed

#: From ECPay's own page about the check value.
PUBLISHED = {
    "TradeDesc": "促銷方案",
    "PaymentType": "aio",
    "MerchantTradeDate": "2023/03/12 15:30:23",
    "MerchantTradeNo": "ecpay20230312153023",
    "MerchantID": "3002607",
    "ReturnURL": "https://www.ecpay.com.tw/receive.php",
    "ItemName": "Apple iphone 15",
    "TotalAmount": "30000",
    "ChoosePayment": "ALL",
    "EncryptType": "1",
}
PUBLISHED_MAC = "6C51C9E6888DE861FD62FB1DD17029FC742634498FD813DC43D4243B5685B840"


def test_the_check_value_matches_ecpays_published_example() -> None:
    value = checkmac.compute(PUBLISHED.items(), ACCOUNT.hash_key, ACCOUNT.hash_iv)
    assert value == PUBLISHED_MAC
    assert mac(PUBLISHED) == PUBLISHED_MAC


async def test_an_order_within_the_limits_shows_the_card_page(shop: Shop) -> None:
    await shop.place_order(
        TradeDesc="x" * 200,
        ItemName="雪" * 400,
        MerchantTradeNo="aA1".ljust(20, "0"),
        OrderResultURL="https://shop.example/return?x=1",
        Language="ENG",
        CustomField1="f" * 50,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("MerchantTradeNo", None),
        ("MerchantTradeNo", "x" * 21),
        ("MerchantTradeNo", "with-dash"),
        ("MerchantTradeDate", "2026/11/22T03:00:00"),
        ("MerchantTradeDate", "2026/13/22 03:00:00"),
        ("MerchantTradeDate", "2026/1/2 03:00:00"),
        ("PaymentType", "AIO"),
        ("TotalAmount", "0"),
        ("TotalAmount", "15.90"),
        ("TotalAmount", "-1"),
        ("TotalAmount", "１５"),
        ("TradeDesc", ""),
        ("TradeDesc", "x" * 201),
        ("TradeDesc", "<b>"),
        ("ItemName", "x" * 401),
        ("ReturnURL", "https://shop.example/" + "x" * 200),
        ("ReturnURL", "ftp://shop.example/"),
        ("ReturnURL", "https://shop.example/a;b"),
        ("OrderResultURL", "https://shop.example/" + "x" * 200),
        ("ChoosePayment", "Cash"),
        ("EncryptType", "0"),
        ("CustomField1", "x" * 51),
        ("Language", "en"),
        ("NeedExtraPaidInfo", "yes"),
        ("Surprise", "1"),
    ],
)
async def test_an_invalid_order_is_refused_with_the_name_of_the_field(
    shop: Shop, field: str, value: str | None
) -> None:
    page = await shop.buyer.bring(shop.order(**{field: value}))
    assert "The order cannot be accepted" in page
    assert field in page


async def test_an_order_that_is_not_signed_by_its_merchant_is_refused(shop: Shop) -> None:
    order = shop.order()
    for changed in (
        order | {"TotalAmount": "1"},
        {name: order[name] for name in order if name != "CheckMacValue"},
        signed(order, OTHER),
        order | {"CheckMacValue": order["CheckMacValue"].lower()},
    ):
        assert "CheckMacValue Error" in await shop.buyer.bring(changed)
    stranger = signed(order | {"MerchantID": "7"})
    assert "MerchantID Error" in await shop.buyer.bring(stranger)


async def test_the_two_urls_must_differ(shop: Shop) -> None:
    page = await shop.buyer.bring(shop.order(OrderResultURL=shop.ear.url))
    assert "ReturnURL and OrderResultURL must differ" in page


async def test_an_order_number_can_be_used_once_per_merchant(shop: Shop) -> None:
    order = await shop.place_order()
    assert "10300028" in await shop.buyer.bring(order)
    again = shop.order(MerchantTradeNo=order["MerchantTradeNo"], TotalAmount="2")
    assert "10300028" in await shop.buyer.bring(again)
    theirs = shop.order(OTHER, MerchantTradeNo=order["MerchantTradeNo"])
    assert "Card number" in await shop.buyer.bring(theirs)
