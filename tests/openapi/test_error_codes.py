"""Every error code, with its condition and a request that causes it.

The contract documents each condition. Two codes have no request: the state machine's rejection is
tested with the state machine, and the alias is never sent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from payintent.chains.operations import SetToken
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.health import FAILURES_MAX, GatewayChannel
from payintent.gateways.port import (
    FailureReason,
    GatewaySessionState,
    OutcomeUnknown,
    SessionReport,
)
from payintent.http.docs.documents import read_openapi_document
from payintent.http.errors import STATUS_BY_CODE
from payintent.payments.model import PaymentStatus, PaymentTrigger, find_transition
from payintent.runtime.settings import Settings
from tests.http.fault_proxy import FaultProxy
from tests.openapi.strict_contract import conforms
from tests.refunds.requests import REFUNDS, create_paid, post_refund, read_stored_refunds
from tests.support.arrange import bring_to, cancel, post, quotes, refusal, select, view
from tests.support.contracts import bill, offer_tokens, session_path
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

PAYMENTS = "/v1/payments"
PAYMENT = "/v1/payments/{payment_id}"
CANCEL = "/v1/payments/{payment_id}/cancel"
CHECKOUT = "/v1/checkout/{checkout_id}"
QUOTES = "/v1/checkout/{checkout_id}/quotes"
ONRAMP = "/v1/onramp/orders"
SESSION = "/v1/onchain/sessions/{session_id}"
UNKNOWN_ID = "pay_0000000000000000000001"
DECLINED = SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.TX_REVERTED)


async def malformed(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await post(api, b"{"))


async def amount_with_exponent(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(amount="1e3"))


async def fractional_yen(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(currency="JPY", amount="100.0"))


async def unknown_currency(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(currency="XYZ"))


async def no_key(api: Api) -> Answer:
    return conforms("GET", PAYMENT, await api.send("GET", f"{PAYMENTS}/{UNKNOWN_ID}"))


async def foreign_payment(api: Api) -> Answer:
    created = await api.create()
    await api.world.rows(
        """
        WITH other AS (INSERT INTO merchant (name) VALUES ('Other') RETURNING id)
        UPDATE payment SET merchant_id = other.id FROM other
        """
    )
    return conforms("GET", PAYMENT, await api.get(created.json["id"]))


async def unknown_payment(api: Api) -> Answer:
    return conforms("GET", PAYMENT, await api.get(UNKNOWN_ID))


async def unknown_checkout(api: Api) -> Answer:
    answer = await api.send("GET", "/v1/checkout/cs_0000000000000001")
    return conforms("GET", CHECKOUT, answer)


async def unknown_method(api: Api) -> Answer:
    created = await api.create()
    return conforms("POST", QUOTES, await select(api, created, payment_method_id=999))


async def outdated_price(api: Api) -> Answer:
    created = await api.create()
    return conforms("POST", QUOTES, await select(api, created, expected_total_amount="1.00"))


async def reused_key(api: Api) -> Answer:
    key = str(uuid4())
    await api.create(key=key)
    return conforms("POST", PAYMENTS, await api.create(key=key, amount="1.00"))


async def ended_checkout(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "CANCELLED")
    return conforms("GET", QUOTES, await quotes(api, created))


async def cancel_while_processing(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    return conforms("POST", CANCEL, await cancel(api, created))


async def excessive_refund(api: Api) -> Answer:
    return conforms(
        "POST", REFUNDS, await post_refund(api, await create_paid(api), amount="1590.01")
    )


async def refund_during_outage(api: Api) -> Answer:
    created, health = await create_paid(api), api.world.health
    for _ in range(FAILURES_MAX):
        await health.record_result(
            api.world.account_id, GatewayChannel.REFUNDS, OutcomeUnknown(detail="no answer")
        )
    answer = conforms("POST", REFUNDS, await post_refund(api, created))
    assert int(answer.headers["Retry-After"]) >= 1
    assert await read_stored_refunds(api.world) == []
    return answer


async def expired_checkout(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "EXPIRED")
    return conforms("POST", QUOTES, await select(api, created))


async def session_of_an_ended_payment(api: Api) -> Answer:
    payment, session = await bill(api.world, (await offer_tokens(api.world))["USDT"])
    await api.world.report(payment, session.id, DECLINED)
    return conforms("GET", SESSION, await api.send("GET", session_path(session)))


async def disabled_token(api: Api) -> Answer:
    method = (await offer_tokens(api.world))["USDT"]
    await api.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    created = await api.create(currency="USD", amount="25.50")
    return conforms("POST", QUOTES, await select(api, created, payment_method_id=method))


async def suspended_merchant(api: Api) -> Answer:
    await api.world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    return conforms("POST", PAYMENTS, await api.create())


async def currency_without_method(api: Api) -> Answer:
    await api.world.rows("UPDATE payment_method SET currencies = '{THB}'")
    return conforms("POST", PAYMENTS, await api.create(currency="JPY", amount="100"))


async def unlisted_country(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(country="KP"))


async def switched_off_gateway(api: Api) -> Answer:
    created = await api.create()
    await api.world.rows("UPDATE provider_account SET enabled = false")
    return conforms("POST", QUOTES, await select(api, created))


async def exhausted_quota(api: Api) -> Answer:
    await api.world.rows(
        "INSERT INTO rate_limit (merchant_id, class, per_s, burst) VALUES ($1, 'create', 1, 1)",
        api.world.merchant_id,
    )
    answers = await asyncio.gather(*(api.create() for _ in range(20)))
    refused = next(answer for answer in answers if answer.status != 201)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["RateLimit-Policy"] == '"create";q=1;w=1'
    return conforms("POST", PAYMENTS, refused)


async def constraint_violation(api: Api) -> Answer:
    await api.world.rows("ALTER TABLE payment ADD CONSTRAINT planted CHECK (payer_uid <> 'bug')")
    return conforms("POST", PAYMENTS, await api.create(payer_uid="bug"))


async def onramp_order(api: Api) -> Answer:
    return conforms("POST", ONRAMP, await api.send("POST", ONRAMP, json={"country": "TH"}))


async def unresponsive_gateway(api: Api) -> Answer:
    created = await api.create()
    api.world.gateway.answer_create = lambda _: OutcomeUnknown(detail="no answer")
    answer = conforms("POST", QUOTES, await select(api, created))
    assert (await view(api, created)).json["status"] == "PENDING"
    return answer


async def unreachable_database(api: Api) -> Answer:
    created = await api.create()
    await api.proxy.cut()  # type: ignore[attr-defined]
    return conforms("GET", PAYMENT, await api.get(created.json["id"]))


@dataclass(frozen=True)
class Row:
    """An error code, its status, and an example: a request, or the reason why it has none."""

    code: str
    status: int
    case: str
    example: Callable[[Api], Awaitable[Answer]] | str

    def __str__(self) -> str:
        return f"{self.code} {self.status}"


RULE = "no request can cause it"
NEVER = "never sent: a documented alias"
TABLE = [
    Row("BAD_REQUEST", 400, "a body that is not JSON", malformed),
    Row("INVALID_AMOUNT", 400, "an amount with an exponent", amount_with_exponent),
    Row("INVALID_AMOUNT", 422, "yen with a fraction", fractional_yen),
    Row("INVALID_CURRENCY", 400, "an unknown currency", unknown_currency),
    Row("UNAUTHORIZED", 401, "no API key", no_key),
    Row("FORBIDDEN", 403, "another merchant's payment", foreign_payment),
    Row("NOT_FOUND", 404, "an unknown payment", unknown_payment),
    Row("CHECKOUT_NOT_FOUND", 404, "an unknown checkout", unknown_checkout),
    Row("PAYMENT_METHOD_NOT_FOUND", 404, "an unknown payment method", unknown_method),
    Row("CONFLICT", 409, "an outdated price", outdated_price),
    Row("IDEMPOTENCY_CONFLICT", 409, "a reused key with a different body", reused_key),
    Row("INVALID_CHECKOUT_STATE", 409, "quotes for a cancelled checkout", ended_checkout),
    Row("INVALID_PAYMENT_STATE", 409, "a cancellation in PROCESSING", cancel_while_processing),
    Row("INVALID_TRANSITION", 409, "PENDING to PAID", RULE),
    Row(
        "REFUND_EXCEEDS_REMAINING",
        409,
        "a refund of more than the remaining amount",
        excessive_refund,
    ),
    Row("CHECKOUT_EXPIRED", 410, "a selection after the expiry", expired_checkout),
    Row("SESSION_GONE", 410, "the session of an ended payment", session_of_an_ended_payment),
    Row("UNPROCESSABLE", 422, "a payment of a suspended merchant", suspended_merchant),
    Row("UNSUPPORTED_CURRENCY", 422, "a currency without a method", currency_without_method),
    Row("UNSUPPORTED_COUNTRY", 422, "an unsupported country", unlisted_country),
    Row("PAYMENT_TOKEN_NOT_AVAILABLE", 422, "a disabled token", disabled_token),
    Row("PG_NOT_AVAILABLE", 422, "a method of a disabled account", switched_off_gateway),
    Row("RATE_LIMITED", 429, "more requests than the rate limit", exhausted_quota),
    Row("INTERNAL_ERROR", 500, "a constraint violation", constraint_violation),
    Row("SERVER_ERROR", 500, "the old name of INTERNAL_ERROR", NEVER),
    Row("NOT_IMPLEMENTED", 501, "an on-ramp order", onramp_order),
    Row("PG_UPSTREAM_ERROR", 502, "an unresponsive gateway", unresponsive_gateway),
    Row("SERVICE_UNAVAILABLE", 503, "an unreachable database", unreachable_database),
    Row(
        "REFUND_PROVIDER_UNAVAILABLE",
        503,
        "a refund during a gateway outage",
        refund_during_outage,
    ),
]
EXAMPLES = [row for row in TABLE if not isinstance(row.example, str)]


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(database_url)
    await proxy.mend()
    yield proxy
    await proxy.cut()


@pytest.fixture
def settings(settings: Settings, proxy: FaultProxy) -> Settings:
    return settings.model_copy(update={"database_url": proxy.url})


@pytest.mark.parametrize("row", EXAMPLES, ids=str)
async def test_each_example_request_returns_its_error_code(
    api: Api, proxy: FaultProxy, row: Row
) -> None:
    api.proxy = proxy  # type: ignore[attr-defined]
    answer = await row.example(api)  # type: ignore[operator]
    assert refusal(answer) == (row.status, row.code)


def test_the_table_has_every_error_code_with_every_status() -> None:
    statuses_by_code = {
        item["code"]: item["status"] for item in read_openapi_document()["x-error-codes"]
    }
    # see tests/http/test_http_wire.py for statuses that routes do not return
    statuses_by_code["BAD_REQUEST"] = [400]
    assert {(row.code, row.status) for row in TABLE} == {
        (code, status) for code, statuses in statuses_by_code.items() for status in statuses
    }
    assert {row.code for row in TABLE} == set(ErrorCode)
    assert all(
        STATUS_BY_CODE[ErrorCode(row.code)] == row.status or row.status == 400 for row in TABLE
    )


def test_every_sent_error_code_except_invalid_transition_has_an_example_request() -> None:
    usage_by_code: dict[str, Any] = {
        item["code"]: item["sent"] for item in read_openapi_document()["x-error-codes"]
    }
    now = {code for code, usage in usage_by_code.items() if usage == "now"}
    assert {row.code for row in EXAMPLES} | {"INVALID_TRANSITION"} == now
    assert len(now) == 27
    assert {code: usage for code, usage in usage_by_code.items() if code not in now} == {
        "SERVER_ERROR": "never"
    }


def test_the_state_machine_rejects_an_undefined_transition() -> None:
    with pytest.raises(RefusedError) as refused:
        find_transition(PaymentStatus.PENDING, PaymentTrigger.CONFIRM)
    assert refused.value.code is ErrorCode.INVALID_TRANSITION
