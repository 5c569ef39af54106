"""Test the browser SDK's 28 error codes in a real browser."""

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
from tests.support.ports import free_port
from tests.web.sdk_driver import NATIVE, SdkPage, wallet_session
from tests.web.wallet import ELSEWHERE, REJECTED, Wallet, WalletError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

NETWORK, VALIDATION, PAYMENT = "network_error", "validation_error", "payment_error"
SERVER, SDK = "server_error", "sdk_error"
#: Spec section 7.3: the type of each code, and whether the call is retryable.
CODES = {
    "NETWORK_TIMEOUT": (NETWORK, True),
    "NETWORK_OFFLINE": (NETWORK, True),
    "POLLING_TIMEOUT": (NETWORK, True),
    "SDK_NOT_LOADED": (SDK, True),
    "WIDGET_LOAD_FAILED": (SDK, True),
    "WALLET_INIT_FAILED": (SDK, True),
    "SSR_UNSUPPORTED": (SDK, False),
    "POPUP_BLOCKED": (SDK, False),
    "AMOUNT_NOT_SET": (SDK, False),
    "WIDGET_NOT_MOUNTED": (SDK, False),
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

#: Codes that a single call can cause.
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


async def _cause_payment_errors(sdk: SdkPage) -> dict[str, dict[str, Any]]:
    """Cause the errors that depend on a payment."""
    wait = "id => sdk.waitForResult(id)"
    errors: dict[str, dict[str, Any]] = {}
    pending = await sdk.create()
    soon = "id => sdk.waitForResult(id, { timeoutMs: 1 })"
    errors["POLLING_TIMEOUT"] = await sdk.expect_error(soon, pending.json["checkout_id"])
    for code, reason in (("PAYMENT_DECLINED", "DECLINED"), ("PAYMENT_FAILED", "AMOUNT_MISMATCH")):
        created = await sdk.create()
        assert (await select(sdk.api, created)).status == 200
        session_id = (await payment_of(sdk.api, created)).session_id
        report = {"state": "declined", "reason": reason}
        assert (await callback(sdk.api, session_id, report, code)).status == 200
        errors[code] = await sdk.expect_error(wait, created.json["checkout_id"])
    for code, status in (("PAYMENT_CANCELLED", "CANCELLED"), ("CHECKOUT_EXPIRED", "EXPIRED")):
        created = await sdk.create(**({"expires_in": 60} if status == "EXPIRED" else {}))
        await bring_to(sdk.api, created, status)
        errors[code] = await sdk.expect_error(wait, created.json["checkout_id"])
    # An origin can show the checkout only if the merchant has registered it.
    frame = "checkoutUrl => sdk.widget({ checkoutUrl, loadTimeoutMs: 500 }).mount('#pay')"
    errors["WIDGET_LOAD_FAILED"] = await sdk.expect_error(frame, pending.json["checkout_url"])
    return errors


async def _cause_loader_errors(sdk: SdkPage) -> dict[str, dict[str, Any]]:
    await sdk.open("bare")
    load = "src => loader.loadCheckout({ src })"
    missing = f"http://127.0.0.1:{free_port()}/sdk/v1.js"
    worker = """() => new Promise((done, cut) => {
      new Worker("/worker/sdk/v1.js", { type: "module" }).onmessage = ({ data }) =>
        cut({ toJSON: () => data });
    })"""
    return {
        "INVALID_SCRIPT_URL": await sdk.expect_error(load, "/sdk/v1.js"),
        "SDK_NOT_LOADED": await sdk.expect_error(load, missing),
        "SSR_UNSUPPORTED": await sdk.expect_error(worker),  # like a server, a worker has no window
    }


async def _cause_popup_error(sdk: SdkPage, browser: Browser) -> dict[str, dict[str, Any]]:
    """Cause the error in a browser that blocks popups."""
    blocker = await browser.browser_type.launch(
        executable_path=programs.find(), ignore_default_args=["--disable-popup-blocking"]
    )
    page = await blocker.new_page()
    await page.goto(f"{sdk.shop.url}/unasked")
    await page.wait_for_function("globalThis.failed")
    error = await page.evaluate("failed")
    await blocker.close()
    return {"POPUP_BLOCKED": error}


async def _cause_wallet_errors(
    sdk: SdkPage, ground: ChainWorld, wallet: Wallet
) -> dict[str, dict[str, Any]]:
    arguments = await wallet_session(ground, NATIVE)
    errors: dict[str, dict[str, Any]] = {}
    pay = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    wallet.refusals = {"eth_requestAccounts": WalletError(REJECTED, "User rejected the request.")}
    errors["USER_REJECTED"] = await sdk.expect_error(pay, arguments)
    wallet.network_id, wallet.known_chains, wallet.ignores_switch = (
        ELSEWHERE,
        {ELSEWHERE, wallet.own_network_id},
        True,
    )
    errors["WRONG_CHAIN"] = await sdk.expect_error(pay, arguments)
    wallet.network_id, wallet.ignores_switch = wallet.own_network_id, False
    payer, wallet.accounts = wallet.accounts, ["0x" + "11" * 20]
    errors["INSUFFICIENT_FUNDS"] = await sdk.expect_error(pay, arguments)
    wallet.accounts, wallet.overrides = payer, {"gas": hex(3_000_000), "value": "0x1"}
    errors["ONCHAIN_TX_FAILED"] = await sdk.expect_error(pay, arguments)
    assert len(wallet.hashes) == 1  # it was mined, but reverted
    return errors


async def test_every_error_code_can_be_caused_and_has_the_specified_type(
    sdk: SdkPage, browser: Browser, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    errors = {code: await sdk.expect_error(script) for code, script in BY_CALLS.items()}
    errors |= await _cause_wallet_errors(sdk, ground, wallet)
    errors |= await _cause_payment_errors(sdk)
    errors |= await _cause_loader_errors(sdk)
    errors |= await _cause_popup_error(sdk, browser)
    assert {code: error["code"] for code, error in errors.items()} == {code: code for code in CODES}
    types = {code: (error["type"], error["retryable"]) for code, error in errors.items()}
    assert types == CODES
    assert all(list(error) == FIELDS for error in errors.values())
    assert all(error["message"] for error in errors.values())
    codes_with_checkout = {code for code, error in errors.items() if error["checkoutId"]}
    assert {
        "NETWORK_TIMEOUT",
        "WRONG_CHAIN",
        "WIDGET_LOAD_FAILED",
        "PAYMENT_FAILED",
    } <= codes_with_checkout


INVALID_CALLS = [
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


async def test_invalid_arguments_are_rejected_with_specific_codes(sdk: SdkPage) -> None:
    await sdk.open()
    for script, code in INVALID_CALLS:
        error = await sdk.expect_error(script.replace("SERVICE", sdk.shop.service))
        assert error["code"] == code, script


UNEXPECTED = {
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


async def test_unexpected_responses_cause_distinct_errors(sdk: SdkPage) -> None:
    await sdk.open()
    retrieve = f"options => PayIntent(options).retrieve('{ID}')"
    for kind, expected in UNEXPECTED.items():
        options = {"apiBase": f"/{kind}/v1", "timeoutMs": 1_000, "maxRetries": 0}
        outcome = await sdk.call(retrieve, options)
        error, more = outcome["error"], outcome["more"]
        assert (error["code"], error["type"], error["retryable"]) == expected, kind
        assert error["checkoutId"] == ID
        assert more.get("retryAfterMs") == (7_000 if kind == "busy" else None)
        assert more.get("fds", {}).get("code") == ("NEW_ONE" if kind == "both" else None)


async def test_reads_are_retried_but_long_waits_and_selections_are_not(sdk: SdkPage) -> None:
    await sdk.open()
    read = f"apiBase => PayIntent({{ apiBase }}).retrieve('{ID}')"
    assert (await sdk.call(read, "/soon/v1"))["result"]["status"] == "PENDING"
    assert sdk.shop.request_counts["GET soon"] == 3
    read_once = f"apiBase => PayIntent({{ apiBase, timeoutMs: 5000 }}).retrieve('{ID}')"
    await sdk.expect_error(read_once, "/busy/v1")  # a wait of seven seconds is left to the caller
    assert sdk.shop.request_counts["GET busy"] == 1
    choose = f"apiBase => PayIntent({{ apiBase }}).selectQuote('{ID}', {{ payment_method_id: 1 }})"
    await sdk.expect_error(choose, "/down/v1")
    assert sdk.shop.request_counts["POST down"] == 1


async def test_service_errors_have_their_code_and_request_id(
    sdk: SdkPage,
) -> None:
    await sdk.open()
    created = await sdk.create()
    checkout_id, method = created.json["checkout_id"], sdk.api.world.card
    choose = "([id, body]) => sdk.selectQuote(id, body)"
    expected_errors = {
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
    for code, (type_, arguments) in expected_errors.items():
        error = await sdk.expect_error(choose, arguments)
        assert (error["code"], error["type"], error["retryable"]) == (code, type_, False)
        assert re.fullmatch(r"[0-9a-f]{32}", error["requestId"])
        assert error["checkoutId"] == arguments[0]
    await bring_to(sdk.api, created, "PROCESSING")
    error = await sdk.expect_error("id => sdk.cancel(id)", checkout_id)
    assert (error["code"], error["type"]) == ("INVALID_PAYMENT_STATE", PAYMENT)


async def test_a_fraud_block_is_a_decline_with_the_screening_result(sdk: SdkPage) -> None:
    await sdk.open()
    await sdk.api.world.perform(AddFraudRule(kind=FraudRuleKind.EMAIL, value="@bad.test"))
    created = await sdk.create()
    body = {"payment_method_id": sdk.api.world.card, "payer_email": "b@bad.test"}
    script = "([id, body]) => sdk.selectQuote(id, body)"
    outcome = await sdk.call(script, [created.json["checkout_id"], body])
    assert outcome["error"]["code"] == "PAYMENT_DECLINED"
    assert outcome["more"]["fds"]["code"] == "EMAIL_BLOCKED"
    assert outcome["more"]["status"] == 200


async def test_wallet_errors_map_to_specific_codes(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    arguments = await wallet_session(ground, NATIVE)
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
        (send, WalletError(0, "User canceled"), "USER_REJECTED"),
        (send, WalletError(-32000, "insufficient funds for gas"), "INSUFFICIENT_FUNDS"),
        (send, WalletError(-32603, "Internal JSON-RPC error."), "ONCHAIN_TX_FAILED"),
    ):
        wallet.refusals = {method: error}
        assert (await sdk.expect_error(pay, arguments))["code"] == code
    wallet.refusals = {}
    payer, wallet.accounts = wallet.accounts, []
    assert (await sdk.expect_error(pay, arguments))["code"] == "WALLET_INIT_FAILED"
    wallet.accounts, wallet.network_id, wallet.known_chains = (
        payer,
        ELSEWHERE,
        {ELSEWHERE, wallet.own_network_id},
    )
    wallet.refusals = {"wallet_switchEthereumChain": WalletError(REJECTED, "User rejected")}
    assert (await sdk.expect_error(pay, arguments))["code"] == "USER_REJECTED"
    assert wallet.hashes == []


async def test_the_sdk_accepts_the_same_countries_and_currencies_as_the_service(
    sdk: SdkPage,
) -> None:
    await sdk.open()
    query = (
        f"code => PayIntent({{ apiBase: '/nocode/v1' }}).listQuotes('{ID}', {{ country: code }})"
    )
    for country in (*COUNTRIES, "GB", "KP"):
        is_supported = (await sdk.expect_error(query, country))["code"] == "INVALID_RESPONSE"
        assert is_supported == (country in COUNTRIES), country
    amount = f"given => {DEFERRED}.setAmount(given)"
    for code, currency in CURRENCIES.items():
        for decimals, is_valid in ((currency.amount_decimals, True), (19, False)):
            text = "1." + "0" * (decimals - 1) + "1" if decimals else "1"
            outcome = await sdk.call(amount, {"amount": text, "currency": code})
            assert ("error" not in outcome) == is_valid, (code, text)
