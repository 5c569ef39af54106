"""Each of the 28 error codes, with its condition and a request that causes it.

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
from tests.openapi.conforming import conforms
from tests.refunds.requests import REFUNDS, ask, kept, paid
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
NOBODYS = "pay_0000000000000000000001"
DECLINED = SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.TX_REVERTED)


async def malformed(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await post(api, b"{"))


async def no_decimal(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(amount="1e3"))


async def too_fine(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(currency="JPY", amount="100.0"))


async def unknown_currency(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(currency="XYZ"))


async def no_key(api: Api) -> Answer:
    return conforms("GET", PAYMENT, await api.send("GET", f"{PAYMENTS}/{NOBODYS}"))


async def anothers_payment(api: Api) -> Answer:
    created = await api.create()
    await api.world.rows(
        """
        WITH other AS (INSERT INTO merchant (name) VALUES ('Other') RETURNING id)
        UPDATE payment SET merchant_id = other.id FROM other
        """
    )
    return conforms("GET", PAYMENT, await api.get(created.json["id"]))


async def nobodys_payment(api: Api) -> Answer:
    return conforms("GET", PAYMENT, await api.get(NOBODYS))


async def unknown_checkout(api: Api) -> Answer:
    answer = await api.send("GET", "/v1/checkout/cs_0000000000000001")
    return conforms("GET", CHECKOUT, answer)


async def unknown_method(api: Api) -> Answer:
    created = await api.create()
    return conforms("POST", QUOTES, await select(api, created, payment_method_id=999))


async def another_price(api: Api) -> Answer:
    created = await api.create()
    return conforms("POST", QUOTES, await select(api, created, expected_total_amount="1.00"))


async def key_used_twice(api: Api) -> Answer:
    key = str(uuid4())
    await api.create(key=key)
    return conforms("POST", PAYMENTS, await api.create(key=key, amount="1.00"))


async def ended_checkout(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "CANCELLED")
    return conforms("GET", QUOTES, await quotes(api, created))


async def cancel_of_processing(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    return conforms("POST", CANCEL, await cancel(api, created))


async def refund_of_too_much(api: Api) -> Answer:
    return conforms("POST", REFUNDS, await ask(api, await paid(api), amount="1590.01"))


async def refund_while_the_gateways_are_down(api: Api) -> Answer:
    created, health = await paid(api), api.world.health
    for _ in range(FAILURES_MAX):
        await health.record_result(
            api.world.account_id, GatewayChannel.REFUNDS, OutcomeUnknown(detail="no answer")
        )
    answer = conforms("POST", REFUNDS, await ask(api, created))
    assert int(answer.headers["Retry-After"]) >= 1
    assert await kept(api.world) == []
    return answer


async def expired_checkout(api: Api) -> Answer:
    created = await api.create()
    await bring_to(api, created, "EXPIRED")
    return conforms("POST", QUOTES, await select(api, created))


async def session_of_an_ended_payment(api: Api) -> Answer:
    payment, session = await bill(api.world, (await offer_tokens(api.world))["USDT"])
    await api.world.report(payment, session.id, DECLINED)
    return conforms("GET", SESSION, await api.send("GET", session_path(session)))


async def token_that_is_not_taken(api: Api) -> Answer:
    method = (await offer_tokens(api.world))["USDT"]
    await api.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    created = await api.create(currency="USD", amount="25.50")
    return conforms("POST", QUOTES, await select(api, created, payment_method_id=method))


async def suspended_merchant(api: Api) -> Answer:
    await api.world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    return conforms("POST", PAYMENTS, await api.create())


async def no_method_for_it(api: Api) -> Answer:
    await api.world.rows("UPDATE payment_method SET currencies = '{THB}'")
    return conforms("POST", PAYMENTS, await api.create(currency="JPY", amount="100"))


async def unlisted_country(api: Api) -> Answer:
    return conforms("POST", PAYMENTS, await api.create(country="KP"))


async def switched_off_gateway(api: Api) -> Answer:
    created = await api.create()
    await api.world.rows("UPDATE provider_account SET enabled = false")
    return conforms("POST", QUOTES, await select(api, created))


async def spent_quota(api: Api) -> Answer:
    await api.world.rows(
        "INSERT INTO rate_limit (merchant_id, class, per_s, burst) VALUES ($1, 'create', 1, 1)",
        api.world.merchant_id,
    )
    answers = await asyncio.gather(*(api.create() for _ in range(20)))
    refused = next(answer for answer in answers if answer.status != 201)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["RateLimit-Policy"] == '"create";q=1;w=1'
    return conforms("POST", PAYMENTS, refused)


async def a_bug(api: Api) -> Answer:
    await api.world.rows("ALTER TABLE payment ADD CONSTRAINT planted CHECK (payer_uid <> 'bug')")
    return conforms("POST", PAYMENTS, await api.create(payer_uid="bug"))


async def orders_of_tokens(api: Api) -> Answer:
    return conforms("POST", ONRAMP, await api.send("POST", ONRAMP, json={"country": "TH"}))


async def silent_gateway(api: Api) -> Answer:
    created = await api.create()
    api.world.gateway.answer_create = lambda _: OutcomeUnknown(detail="no answer")
    answer = conforms("POST", QUOTES, await select(api, created))
    assert (await view(api, created)).json["status"] == "PENDING"
    return answer


async def database_away(api: Api) -> Answer:
    created = await api.create()
    await api.proxy.cut()  # type: ignore[attr-defined]
    return conforms("GET", PAYMENT, await api.get(created.json["id"]))


@dataclass(frozen=True)
class Row:
    """A code, its status, and a case of its condition: a request or its preparation."""

    code: str
    status: int
    case: str
    shown_by: Callable[[Api], Awaitable[Answer]] | str

    def __str__(self) -> str:
        return f"{self.code} {self.status}"


RULE = "the rule itself: no route leads there"
NEVER = "never: an alias that is documented"
TABLE = [
    Row("BAD_REQUEST", 400, "a body that is no JSON", malformed),
    Row("INVALID_AMOUNT", 400, "an amount with an exponent", no_decimal),
    Row("INVALID_AMOUNT", 422, "yen with a fraction", too_fine),
    Row("INVALID_CURRENCY", 400, "a currency that nobody knows", unknown_currency),
    Row("UNAUTHORIZED", 401, "no API key", no_key),
    Row("FORBIDDEN", 403, "another merchant's payment", anothers_payment),
    Row("NOT_FOUND", 404, "a payment that nobody has", nobodys_payment),
    Row("CHECKOUT_NOT_FOUND", 404, "a checkout that nobody has", unknown_checkout),
    Row("PAYMENT_METHOD_NOT_FOUND", 404, "a method that the merchant lacks", unknown_method),
    Row("CONFLICT", 409, "another price than the buyer has seen", another_price),
    Row("IDEMPOTENCY_CONFLICT", 409, "a key with another body", key_used_twice),
    Row("INVALID_CHECKOUT_STATE", 409, "quotes of a cancelled checkout", ended_checkout),
    Row("INVALID_PAYMENT_STATE", 409, "a cancel in PROCESSING", cancel_of_processing),
    Row("INVALID_TRANSITION", 409, "PENDING to PAID", RULE),
    Row("REFUND_EXCEEDS_REMAINING", 409, "a refund of more than is left", refund_of_too_much),
    Row("CHECKOUT_EXPIRED", 410, "a selection after the time", expired_checkout),
    Row("SESSION_GONE", 410, "a session whose payment has ended", session_of_an_ended_payment),
    Row("UNPROCESSABLE", 422, "a create by a suspended merchant", suspended_merchant),
    Row("UNSUPPORTED_CURRENCY", 422, "a currency without a method", no_method_for_it),
    Row("UNSUPPORTED_COUNTRY", 422, "a country that is not listed", unlisted_country),
    Row("PAYMENT_TOKEN_NOT_AVAILABLE", 422, "a token not enabled", token_that_is_not_taken),
    Row("PG_NOT_AVAILABLE", 422, "a method at a gateway switched off", switched_off_gateway),
    Row("RATE_LIMITED", 429, "more creates than the quota", spent_quota),
    Row("INTERNAL_ERROR", 500, "a row that the database refuses", a_bug),
    Row("SERVER_ERROR", 500, "the old name of INTERNAL_ERROR", NEVER),
    Row("NOT_IMPLEMENTED", 501, "an order of tokens", orders_of_tokens),
    Row("PG_UPSTREAM_ERROR", 502, "a gateway that does not answer", silent_gateway),
    Row("SERVICE_UNAVAILABLE", 503, "a database that is away", database_away),
    Row(
        "REFUND_PROVIDER_UNAVAILABLE",
        503,
        "a refund while the gateway gives none",
        refund_while_the_gateways_are_down,
    ),
]
SHOWN = [row for row in TABLE if not isinstance(row.shown_by, str)]


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(database_url)
    await proxy.mend()
    yield proxy
    await proxy.cut()


@pytest.fixture
def settings(settings: Settings, proxy: FaultProxy) -> Settings:
    return settings.model_copy(update={"database_url": proxy.url})


@pytest.mark.parametrize("row", SHOWN, ids=str)
async def test_each_example_request_returns_its_error_code(
    api: Api, proxy: FaultProxy, row: Row
) -> None:
    api.proxy = proxy  # type: ignore[attr-defined]
    answer = await row.shown_by(api)  # type: ignore[operator]
    assert refusal(answer) == (row.status, row.code)


def test_the_table_has_every_error_code_with_every_status() -> None:
    listed = {item["code"]: item["status"] for item in read_openapi_document()["x-error-codes"]}
    listed["BAD_REQUEST"] = [400]  # the others come before any route: tests/http/test_http_wire.py
    assert {(row.code, row.status) for row in TABLE} == {
        (code, status) for code, statuses in listed.items() for status in statuses
    }
    assert {row.code for row in TABLE} == set(ErrorCode)
    assert all(
        STATUS_BY_CODE[ErrorCode(row.code)] == row.status or row.status == 400 for row in TABLE
    )


def test_every_sent_error_code_except_invalid_transition_has_an_example_request() -> None:
    sent: dict[str, Any] = {
        item["code"]: item["sent"] for item in read_openapi_document()["x-error-codes"]
    }
    now = {code for code, when in sent.items() if when == "now"}
    assert {row.code for row in SHOWN} | {"INVALID_TRANSITION"} == now
    assert len(now) == 27
    assert {code: when for code, when in sent.items() if code not in now} == {
        "SERVER_ERROR": "never"
    }


def test_the_state_machine_rejects_an_undefined_transition() -> None:
    with pytest.raises(RefusedError) as refused:
        find_transition(PaymentStatus.PENDING, PaymentTrigger.CONFIRM)
    assert refused.value.code is ErrorCode.INVALID_TRANSITION
