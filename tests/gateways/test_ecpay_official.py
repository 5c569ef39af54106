"""ECPay's official library accepts our orders, and the emulator accepts its orders."""

import json
import re
import subprocess
from collections.abc import AsyncGenerator, Generator
from html import unescape

import pytest

from payintent.gateways.ecpay.api import check_mac_value
from tests.gateways.ecpay_setup import Stage, open_stage
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, running_ecpay
from tests.support.node import node
from tools.openapi.install import FOLDER

#: Builds an order with the library, which validates every parameter.
_SCRIPT = """
const lines = console.log; console.log = () => {};
const library = require(process.argv[1]);
const [profile, order] = JSON.parse(process.argv[2]);
const client = new library({ OperationMode: "Test", MercProfile: profile, IgnorePayment: [] });
const form = client.payment_client.aio_check_out_credit_onetime(order);
lines(form);
"""
_PROFILE = {
    "MerchantID": ACCOUNT.merchant_id,
    "HashKey": ACCOUNT.hash_key,
    "HashIV": ACCOUNT.hash_iv,
}


def order_by_library(order: dict[str, str]) -> dict[str, str]:
    """Return the form fields that the official library creates for an order."""
    library = str(FOLDER / "node_modules" / "ecpay_aio_nodejs")
    result = subprocess.run(
        [node(), "-e", _SCRIPT, library, json.dumps([_PROFILE, order])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    inputs = re.findall(r'name="(\w+)"[^>]*value="([^"]*)"', result.stdout)
    return {name: unescape(value) for name, value in inputs}


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_ecpay() as url:
        yield url


@pytest.fixture
async def stage(url: str) -> AsyncGenerator[Stage]:
    async with open_stage(url) as stage:
        yield stage


async def create_order(stage: Stage, locale: str | None) -> dict[str, str]:
    request = stage.request(locale=locale)
    session = await stage.create_session(request)
    return dict(session.next_action["redirect"]["fields"])


@pytest.mark.parametrize("locale", [None, "en-US", "zh-TW", "zh-Hans", "ja", "ko", "th"])
async def test_the_library_accepts_our_order_and_computes_the_same_signature(
    stage: Stage, locale: str | None
) -> None:
    order = await create_order(stage, locale)
    value = order.pop("CheckMacValue")
    added = order_by_library(order)
    assert {name: added[name] for name in order} == order
    signed_by_library = added.pop("CheckMacValue")
    assert check_mac_value(added, ACCOUNT.hash_key, ACCOUNT.hash_iv) == signed_by_library
    assert check_mac_value(order, ACCOUNT.hash_key, ACCOUNT.hash_iv) == value


async def test_the_library_refuses_a_language_that_ecpay_does_not_support(stage: Stage) -> None:
    order = await create_order(stage, None)
    order.pop("CheckMacValue")
    with pytest.raises(AssertionError, match="Language"):
        order_by_library(order | {"Language": "CHT"})


async def test_the_emulator_accepts_an_order_that_the_library_created(stage: Stage) -> None:
    order = await create_order(stage, "ja")
    order.pop("CheckMacValue")
    page = await stage.buyer.bring(order_by_library(order))
    assert "Card number" in page, page
