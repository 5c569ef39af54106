"""Payments to an address with the SDK, which rejects an address that it cannot derive."""

import json
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Route
from pytest_asyncio import fixture

from payintent.core import ids
from payintent.payments.model import Session
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.onchain import ChainWorld, session_path
from tests.support.tampered_sessions import tamper
from tests.web.sdk_driver import LONG_S, SdkPage, until
from tests.web.wallet import Wallet

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_HALF = TOTAL // 2
_TRANSFER = "0xa9059cbb"
_READ = """([chains, id]) => {
  globalThis.sdk = PayIntent({ chains, maxRetries: 0 });
  return sdk.onchain.session(id);
}"""
_PAY = """async ([chains, checkoutId, sessionId]) => {
  globalThis.sdk = PayIntent({ chains, maxRetries: 0 });
  sdk.on("onchain", (event) => events.push(event));
  const [{ provider }] = await sdk.onchain.discover();
  const session = await sdk.onchain.session(sessionId);
  return sdk.onchain.pay({ checkoutId, session, provider });
}"""
_FOLLOW = """async ([chains, checkoutId, sessionId]) => {
  globalThis.sdk = PayIntent({ chains });
  sdk.on("onchain", (event) => events.push(event));
  const [{ provider }] = await sdk.onchain.discover();
  const action = { type: "onchain_session", onchain_session: { session_id: sessionId } };
  return sdk.handleNextAction(checkoutId, action, { provider });
}"""


@fixture(loop_scope=LOOP)
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


@fixture(loop_scope=LOOP)
async def stored_chains(sdk: SdkPage, deposits: DepositGround) -> list[Any]:
    """The chains that the shop has stored."""
    return [(await sdk.api.send("GET", f"/v1/chains/{deposits.ground.slug}")).json]


async def _bill(deposits: DepositGround) -> tuple[Session, str, str]:
    """Create a payment; return its session, the checkout id and the session id."""
    payment, session = await deposits.bill(expires_in_s=LONG_S)
    return session, payment.checkout_id, ids.format_id(ids.SESSION, session.id)


def _has_sent(wallet: Wallet, deposits: DepositGround, session: Session, amount: int) -> bool:
    """Return whether the wallet's only transaction is a transfer of this amount."""
    data = f"{_TRANSFER}{deposits.address(session)[2:].rjust(64, '0')}{amount:064x}"
    [transaction] = wallet.transactions
    token = deposits.ground.token("USDT").lower()
    return (transaction["to"].lower(), transaction["value"], transaction["data"]) == (
        token,
        "0x0",
        data,
    )


async def test_a_wallet_sends_the_remaining_amount_and_the_sdk_reports_each_transfer(
    sdk: SdkPage,
    buyer: BrowserContext,
    deposits: DepositGround,
    wallet: Wallet,
    stored_chains: list[Any],
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    session, checkout_id, session_id = await _bill(deposits)
    await deposits.transfer(session, _HALF)
    await deposits.ground.turn()
    view = (await sdk.call(_READ, [stored_chains, session_id]))["result"]
    assert view["deposit_address"].lower() == deposits.address(session)
    amounts = [view[name]["amount"] for name in ("received", "pending", "remaining")]
    assert amounts == ["0", "12.75", "12.75"]
    assert view["links"]["eip681"].endswith(f"&uint256={_HALF}")

    await sdk.start("result", _FOLLOW, [stored_chains, checkout_id, session_id])
    await until(lambda: wallet.hashes)
    assert _has_sent(wallet, deposits, session, _HALF)
    await sdk.page.wait_for_function("() => globalThis.sdk")
    await deposits.ground.turn()
    await sdk.page.wait_for_function("() => events.some((one) => one.remaining?.amount === '0')")
    await deposits.ground.final()
    assert (await sdk.result_of("result"))["result"]["status"] == "PAID"


async def test_transfers_that_the_service_has_not_seen_are_not_repeated(
    sdk: SdkPage,
    buyer: BrowserContext,
    deposits: DepositGround,
    wallet: Wallet,
    stored_chains: list[Any],
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    session, checkout_id, session_id = await _bill(deposits)
    await deposits.transfer(session, _HALF)
    arguments = [stored_chains, checkout_id, session_id]
    assert (await sdk.call(_PAY, arguments))["result"] == {"txHash": wallet.hashes[0]}
    assert _has_sent(wallet, deposits, session, TOTAL - _HALF)
    assert (await sdk.call(_PAY, arguments))["result"] == {"txHash": None}
    assert len(wallet.transactions) == 1


async def test_a_wallet_with_insufficient_funds_does_not_send_a_transfer(
    sdk: SdkPage,
    buyer: BrowserContext,
    deposits: DepositGround,
    wallet: Wallet,
    stored_chains: list[Any],
) -> None:
    await wallet.install(buyer)
    wallet.accounts = [(await deposits.ground.chain.ask("eth_accounts"))[-1]]
    await sdk.open()
    _, checkout_id, session_id = await _bill(deposits)
    error = await sdk.expect_error(_PAY, [stored_chains, checkout_id, session_id])
    assert (error["code"], wallet.transactions) == ("INSUFFICIENT_FUNDS", [])


async def test_a_session_whose_address_cannot_be_derived_is_rejected(
    sdk: SdkPage,
    buyer: BrowserContext,
    deposits: DepositGround,
    wallet: Wallet,
    stored_chains: list[Any],
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    session, checkout_id, session_id = await _bill(deposits)
    view = (await sdk.api.send("GET", session_path(session))).json
    answers: list[Any] = []

    async def answer(route: Route) -> None:
        """Return the responses in order, and repeat the last response."""
        response = answers[0] if len(answers) == 1 else answers.pop(0)
        headers = {"Access-Control-Allow-Origin": "*"}
        await route.fulfill(
            body=json.dumps(response), headers=headers, content_type="application/json"
        )

    await sdk.page.route(f"**{session_path(session)}", answer)
    for name, tampered in tamper(view).items():
        answers[:] = [tampered]
        error = await sdk.expect_error(_READ, [stored_chains, session_id])
        assert error["code"] == "INVALID_RESPONSE", name
        answers[:] = [view, tampered]  # the session changes after it was displayed
        error = await sdk.expect_error(_PAY, [stored_chains, checkout_id, session_id])
        assert error["code"] == "INVALID_RESPONSE", name
    answers[:] = [view]
    for wrong_chains in (
        [],
        [stored_chains[0] | {"deposits": None}],
        [stored_chains[0] | {"network_id": 1}],
    ):
        assert (await sdk.expect_error(_READ, [wrong_chains, session_id]))[
            "code"
        ] == "INVALID_RESPONSE"
    assert (await sdk.expect_error(_READ, [None, session_id]))["code"] == "MISSING_PARAM"
    assert "result" in await sdk.call(_READ, [stored_chains, session_id])
    assert wallet.transactions == []
