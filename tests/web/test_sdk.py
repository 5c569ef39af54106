"""The 28 codes of the browser SDK, each under its condition, in a real browser."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext

from payintent.core.countries import COUNTRIES
from payintent.core.money import CURRENCIES
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from tests.support import browser as programs
from tests.support.arrange import bring_to, callback, payment_of, select
from tests.support.onchain import ChainWorld
from tests.support.world import free_port
from tests.web.sdk_desk import NATIVE, Desk, wallet_session
from tests.web.wallet import ELSEWHERE, REJECTED, Wallet, WalletError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

NETWORK, VALIDATION, PAYMENT = "network_error", "validation_error", "payment_error"
SERVER, OF_SDK = "server_error", "sdk_error"
#: Spec section 7.3: what type each code has, and whether trying again may help.
CODES = {
    "NETWORK_TIMEOUT": (NETWORK, True),
    "NETWORK_OFFLINE": (NETWORK, True),
    "POLLING_TIMEOUT": (NETWORK, True),
    "SDK_NOT_LOADED": (OF_SDK, True),
    "WIDGET_LOAD_FAILED": (OF_SDK, True),
    "WALLET_INIT_FAILED": (OF_SDK, True),
    "SSR_UNSUPPORTED": (OF_SDK, False),
    "POPUP_BLOCKED": (OF_SDK, False),
    "AMOUNT_NOT_SET": (OF_SDK, False),
    "WIDGET_NOT_MOUNTED": (OF_SDK, False),
    "INVALID_SCRIPT_URL": (VALIDATION, False),
    "HTTP_NOT_ALLOWED": (VALIDATION, False),
    "MISSING_PARAM": (VALIDATION, False),
    "INVALID_FORMAT": (VALIDATION, False),
    "INVALID_AMOUNT": (VALIDATION, False),
    "INVALID_CURRENCY": (VALIDATION, False),
    "UNSUPPORTED_CURRENCY": (VALIDATION, False),
    "UNSUPPORTED_COUNTRY": (VALIDATION, False),
    "INVALID_REDIRECT_URL": (VALIDATION, False),
    "INVALID_RESPONSE": (SERVER, False),
    "CHECKOUT_EXPIRED": (PAYMENT, False),
    "PAYMENT_DECLINED": (PAYMENT, False),
    "PAYMENT_CANCELLED": (PAYMENT, False),
    "PAYMENT_FAILED": (PAYMENT, False),
    "USER_REJECTED": (PAYMENT, False),
    "INSUFFICIENT_FUNDS": (PAYMENT, False),
    "WRONG_CHAIN": (PAYMENT, False),
    "ONCHAIN_TX_FAILED": (PAYMENT, False),
}
FIELDS = ["type", "code", "message", "retryable", "requestId", "checkoutId"]
ID = "cs_0000000000000000"
DEFERRED = "sdk.widget({ createCheckout: async () => ({}) })"

#: Those that need nothing but the call.
BY_CALLS = {
    "MISSING_PARAM": "() => sdk.retrieve()",
    "INVALID_FORMAT": "() => sdk.retrieve('cs_short')",
    "INVALID_AMOUNT": f"() => {DEFERRED}.setAmount({{ amount: '10.5', currency: 'JPY' }})",
    "INVALID_CURRENCY": f"() => sdk.listQuotes('{ID}', {{ currency: 'usd' }})",
    "UNSUPPORTED_CURRENCY": f"() => sdk.listQuotes('{ID}', {{ currency: 'EUR' }})",
    "UNSUPPORTED_COUNTRY": f"() => sdk.listQuotes('{ID}', {{ country: 'KP' }})",
    "INVALID_REDIRECT_URL": (
        f"() => sdk.redirectToCheckout({{ checkoutUrl: 'https://pay.evil.test/c/{ID}' }})"
    ),
    "HTTP_NOT_ALLOWED": "async () => PayIntent({ apiBase: 'http://pay.test/v1' })",
    "NETWORK_TIMEOUT": (
        f"() => PayIntent({{ apiBase: '/hang/v1', timeoutMs: 50, maxRetries: 0 }}).retrieve('{ID}')"
    ),
    "NETWORK_OFFLINE": (
        f"() => PayIntent({{ apiBase: '/cut/v1', maxRetries: 0 }}).retrieve('{ID}')"
    ),
    "INVALID_RESPONSE": f"() => PayIntent({{ apiBase: '/html/v1' }}).retrieve('{ID}')",
    "WIDGET_NOT_MOUNTED": f"() => {DEFERRED}.submit()",
    "AMOUNT_NOT_SET": f"() => {{ const w = {DEFERRED}; return w.mount('#pay').then(w.submit); }}",
    "WALLET_INIT_FAILED": "() => sdk.onchain.connect(undefined)",
}


async def _of_payments(desk: Desk) -> dict[str, dict[str, Any]]:
    """Raise the errors of ended payments."""
    wait = "id => sdk.waitForResult(id)"
    raised: dict[str, dict[str, Any]] = {}
    pending = await desk.create()
    soon = "id => sdk.waitForResult(id, { timeoutMs: 1 })"
    raised["POLLING_TIMEOUT"] = await desk.fails(soon, pending.json["checkout_id"])
    for code, reason in (("PAYMENT_DECLINED", "DECLINED"), ("PAYMENT_FAILED", "AMOUNT_MISMATCH")):
        created = await desk.create()
        assert (await select(desk.api, created)).status == 200
        session_id = (await payment_of(desk.api, created)).session_id
        report = {"state": "declined", "reason": reason}
        assert (await callback(desk.api, session_id, report, code)).status == 200
        raised[code] = await desk.fails(wait, created.json["checkout_id"])
    for code, status in (("PAYMENT_CANCELLED", "CANCELLED"), ("CHECKOUT_EXPIRED", "EXPIRED")):
        created = await desk.create(**({"expires_in": 60} if status == "EXPIRED" else {}))
        await bring_to(desk.api, created, status)
        raised[code] = await desk.fails(wait, created.json["checkout_id"])
    # An origin that the merchant has not registered may not show the checkout.
    frame = "checkoutUrl => sdk.widget({ checkoutUrl, loadTimeoutMs: 500 }).mount('#pay')"
    raised["WIDGET_LOAD_FAILED"] = await desk.fails(frame, pending.json["checkout_url"])
    return raised


async def _of_the_loader(desk: Desk) -> dict[str, dict[str, Any]]:
    await desk.open("bare")
    load = "src => loader.loadCheckout({ src })"
    missing = f"http://127.0.0.1:{free_port()}/sdk/v1.js"
    worker = """() => new Promise((done, cut) => {
      new Worker("/worker/sdk/v1.js", { type: "module" }).onmessage = ({ data }) =>
        cut({ toJSON: () => data });
    })"""
    return {
        "INVALID_SCRIPT_URL": await desk.fails(load, "/sdk/v1.js"),
        "SDK_NOT_LOADED": await desk.fails(load, missing),
        "SSR_UNSUPPORTED": await desk.fails(worker),  # there is no window, as on a server
    }


async def _of_a_blocker(desk: Desk, browser: Browser) -> dict[str, dict[str, Any]]:
    """Raise the errors of a browser that blocks popups."""
    blocker = await browser.browser_type.launch(
        executable_path=programs.find(), ignore_default_args=["--disable-popup-blocking"]
    )
    page = await blocker.new_page()
    await page.goto(f"{desk.shop.url}/unasked")
    await page.wait_for_function("globalThis.failed")
    error = await page.evaluate("failed")
    await blocker.close()
    return {"POPUP_BLOCKED": error}


async def _of_wallets(desk: Desk, ground: ChainWorld, wallet: Wallet) -> dict[str, dict[str, Any]]:
    given = await wallet_session(ground, NATIVE)
    raised: dict[str, dict[str, Any]] = {}
    pay = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    wallet.refuses = {"eth_requestAccounts": WalletError(REJECTED, "User rejected the request.")}
    raised["USER_REJECTED"] = await desk.fails(pay, given)
    wallet.network_id, wallet.known, wallet.stays = ELSEWHERE, {ELSEWHERE, wallet.own}, True
    raised["WRONG_CHAIN"] = await desk.fails(pay, given)
    wallet.network_id, wallet.stays = wallet.own, False
    payer, wallet.accounts = wallet.accounts, ["0x" + "11" * 20]
    raised["INSUFFICIENT_FUNDS"] = await desk.fails(pay, given)
    wallet.accounts, wallet.changes = payer, {"gas": hex(3_000_000), "value": "0x1"}
    raised["ONCHAIN_TX_FAILED"] = await desk.fails(pay, given)
    assert len(wallet.hashes) == 1  # it is in a block, and did nothing
    return raised


async def test_every_code_is_raised_on_its_condition_with_its_type(
    desk: Desk, browser: Browser, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    raised = {code: await desk.fails(script) for code, script in BY_CALLS.items()}
    raised |= await _of_wallets(desk, ground, wallet)
    raised |= await _of_payments(desk)
    raised |= await _of_the_loader(desk)
    raised |= await _of_a_blocker(desk, browser)
    assert {code: error["code"] for code, error in raised.items()} == {code: code for code in CODES}
    told = {code: (error["type"], error["retryable"]) for code, error in raised.items()}
    assert told == CODES
    assert all(list(error) == FIELDS for error in raised.values())
    assert all(error["message"] for error in raised.values())
    about = {code for code, error in raised.items() if error["checkoutId"]}
    assert {"NETWORK_TIMEOUT", "WRONG_CHAIN", "WIDGET_LOAD_FAILED", "PAYMENT_FAILED"} <= about


SLIPS = [
    ("() => sdk.retrieve(null)", "MISSING_PARAM"),
    ("() => sdk.retrieve('')", "INVALID_FORMAT"),
    (f"() => sdk.retrieve('{ID}/quotes')", "INVALID_FORMAT"),
    (f"() => sdk.selectQuote('{ID}', {{}})", "MISSING_PARAM"),
    ("() => sdk.onchain.session('sess_no')", "INVALID_FORMAT"),
    ("async () => sdk.widget({})", "MISSING_PARAM"),
    ("() => sdk.openPopup({})", "MISSING_PARAM"),
    (f"() => {DEFERRED}.mount('#nowhere')", "MISSING_PARAM"),
    (f"() => {DEFERRED}.setAmount({{ amount: '1' }})", "MISSING_PARAM"),
    (f"() => {DEFERRED}.setAmount({{ currency: 'USD' }})", "MISSING_PARAM"),
    *(
        (f"() => {DEFERRED}.setAmount({{ amount: {text}, currency: 'USD' }})", "INVALID_AMOUNT")
        for text in ("1.5", "0", "'0.00'", "'-1'", "'1e3'", "'01'", "'1.'", "'1.005'", "''")
    ),
    (f"() => {DEFERRED}.setAmount({{ amount: '1', currency: 'us' }})", "INVALID_CURRENCY"),
    (f"() => {DEFERRED}.setAmount({{ amount: '1', currency: 'BTC' }})", "UNSUPPORTED_CURRENCY"),
    (f"() => {DEFERRED}.update({{}})", "WIDGET_NOT_MOUNTED"),
    *(
        (f"() => sdk.redirectToCheckout({{ checkoutUrl: '{url}' }})", "INVALID_REDIRECT_URL")
        for url in (
            "javascript:alert(1)//",
            "not a url:",
            f"SERVICE/c/{ID}/select",
            f"SERVICE/c/{ID}x",
            f"SERVICE/d/{ID}",
            f"SERVICE.evil.test/c/{ID}",
            f"SERVICE@evil.test/c/{ID}",
        )
    ),
    (
        f"() => sdk.handleNextAction('{ID}', {{ redirect: {{ url: 'http://gateway.test/' }} }})",
        "INVALID_REDIRECT_URL",
    ),
    ("async () => PayIntent({ checkoutBase: 'http://pay.test/c' })", "HTTP_NOT_ALLOWED"),
    ("async () => PayIntent({ apiBase: 'http://[' })", "INVALID_FORMAT"),
]


async def test_a_slip_is_told_before_anything_is_asked(desk: Desk) -> None:
    await desk.open()
    for script, code in SLIPS:
        error = await desk.fails(script.replace("SERVICE", desk.shop.service))
        assert error["code"] == code, script


ODD = {
    "null": ("INVALID_RESPONSE", SERVER, False),
    "lacking": ("INVALID_RESPONSE", SERVER, False),
    "nocode": ("INVALID_RESPONSE", SERVER, False),
    "html400": ("INVALID_RESPONSE", SERVER, False),
    "unsure": ("INVALID_RESPONSE", SERVER, False),
    "both": ("PAYMENT_DECLINED", PAYMENT, False),
    "stall": ("NETWORK_TIMEOUT", NETWORK, True),
    "down": ("SERVICE_UNAVAILABLE", SERVER, True),
    "crowded": ("RATE_LIMITED", "rate_limit_error", True),
    "busy": ("RATE_LIMITED", "rate_limit_error", True),
    "unbuilt": ("NOT_IMPLEMENTED", SERVER, False),
}


async def test_odd_answers_are_told_apart(desk: Desk) -> None:
    await desk.open()
    retrieve = f"options => PayIntent(options).retrieve('{ID}')"
    for kind, expected in ODD.items():
        given = {"apiBase": f"/{kind}/v1", "timeoutMs": 1_000, "maxRetries": 0}
        said = await desk.call(retrieve, given)
        error, more = said["error"], said["more"]
        assert (error["code"], error["type"], error["retryable"]) == expected, kind
        assert error["checkoutId"] == ID
        assert more.get("retryAfterMs") == (7_000 if kind == "busy" else None)
        assert more.get("fds", {}).get("code") == ("NEW_ONE" if kind == "both" else None)


async def test_reading_is_tried_again_and_a_long_wait_or_a_selection_is_not(desk: Desk) -> None:
    await desk.open()
    read = f"apiBase => PayIntent({{ apiBase }}).retrieve('{ID}')"
    assert (await desk.call(read, "/soon/v1"))["result"]["status"] == "PENDING"
    assert desk.shop.asked["GET soon"] == 3
    brief = f"apiBase => PayIntent({{ apiBase, timeoutMs: 5000 }}).retrieve('{ID}')"
    await desk.fails(brief, "/busy/v1")  # seven seconds are the caller's to wait
    assert desk.shop.asked["GET busy"] == 1
    choose = f"apiBase => PayIntent({{ apiBase }}).selectQuote('{ID}', {{ payment_method_id: 1 }})"
    await desk.fails(choose, "/down/v1")
    assert desk.shop.asked["POST down"] == 1


async def test_refusals_of_the_service_keep_their_names_and_say_which_request_it_was(
    desk: Desk,
) -> None:
    await desk.open()
    created = await desk.create()
    checkout_id, method = created.json["checkout_id"], desk.api.world.card
    choose = "([id, body]) => sdk.selectQuote(id, body)"
    refused = {
        "CHECKOUT_NOT_FOUND": ("authentication_error", [ID, {"payment_method_id": method}]),
        "PAYMENT_METHOD_NOT_FOUND": (PAYMENT, [checkout_id, {"payment_method_id": 99}]),
        "INVALID_REDIRECT_URL": (
            VALIDATION,
            [checkout_id, {"payment_method_id": method, "return_url": "https://evil.test/"}],
        ),
        "INVALID_FORMAT": (VALIDATION, [checkout_id, {"payment_method_id": "one"}]),
        "UNSUPPORTED_CURRENCY": (
            VALIDATION,
            [checkout_id, {"payment_method_id": method, "currency": "USDT"}],
        ),
        "CONFLICT": (
            PAYMENT,
            [checkout_id, {"payment_method_id": method, "expected_total_amount": "1.00"}],
        ),
    }
    for code, (type_, given) in refused.items():
        error = await desk.fails(choose, given)
        assert (error["code"], error["type"], error["retryable"]) == (code, type_, False)
        assert re.fullmatch(r"[0-9a-f]{32}", error["requestId"])
        assert error["checkoutId"] == given[0]
    await bring_to(desk.api, created, "PROCESSING")
    error = await desk.fails("id => sdk.cancel(id)", checkout_id)
    assert (error["code"], error["type"]) == ("INVALID_PAYMENT_STATE", PAYMENT)


async def test_a_block_by_fraud_screening_is_a_decline_that_carries_it(desk: Desk) -> None:
    await desk.open()
    await desk.api.world.perform(AddFraudRule(kind=FraudRuleKind.EMAIL, value="@bad.test"))
    created = await desk.create()
    body = {"payment_method_id": desk.api.world.card, "payer_email": "b@bad.test"}
    script = "([id, body]) => sdk.selectQuote(id, body)"
    said = await desk.call(script, [created.json["checkout_id"], body])
    assert said["error"]["code"] == "PAYMENT_DECLINED"
    assert said["more"]["fds"]["code"] == "EMAIL_BLOCKED"
    assert said["more"]["status"] == 200


async def test_wallets_fail_in_their_own_ways(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    given = await wallet_session(ground, NATIVE)
    pay = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    connect, send = "eth_requestAccounts", "eth_sendTransaction"
    for method, error, code in (
        (connect, WalletError(-32002, "Already processing."), "WALLET_INIT_FAILED"),
        (connect, WalletError(-32603, "Internal", REJECTED), "USER_REJECTED"),
        (send, WalletError(REJECTED, "User denied"), "USER_REJECTED"),
        (send, WalletError(-32000, "insufficient funds for gas"), "INSUFFICIENT_FUNDS"),
        (send, WalletError(-32603, "Internal JSON-RPC error."), "ONCHAIN_TX_FAILED"),
    ):
        wallet.refuses = {method: error}
        assert (await desk.fails(pay, given))["code"] == code
    wallet.refuses = {}
    payer, wallet.accounts = wallet.accounts, []
    assert (await desk.fails(pay, given))["code"] == "WALLET_INIT_FAILED"
    wallet.accounts, wallet.network_id, wallet.known = payer, ELSEWHERE, {ELSEWHERE, wallet.own}
    wallet.refuses = {"wallet_switchEthereumChain": WalletError(REJECTED, "User rejected")}
    assert (await desk.fails(pay, given))["code"] == "USER_REJECTED"
    assert wallet.hashes == []


async def test_its_countries_and_currencies_are_those_of_the_service(desk: Desk) -> None:
    await desk.open()
    query = (
        f"code => PayIntent({{ apiBase: '/nocode/v1' }}).listQuotes('{ID}', {{ country: code }})"
    )
    for country in (*COUNTRIES, "GB", "KP"):
        known = (await desk.fails(query, country))["code"] == "INVALID_RESPONSE"
        assert known == (country in COUNTRIES), country
    amount = f"given => {DEFERRED}.setAmount(given)"
    for code, currency in CURRENCIES.items():
        for decimals, fits in ((currency.amount_decimals, True), (19, False)):
            text = "1." + "0" * (decimals - 1) + "1" if decimals else "1"
            said = await desk.call(amount, {"amount": text, "currency": code})
            assert ("error" not in said) == fits, (code, text)
