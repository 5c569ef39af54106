"""Valid and invalid requests generated from the contract never cause an internal error.

`HYPOTHESIS_PROFILE=long` sends ten times as many requests, which differ in each run.
`make test-all` sends the same requests in every run, so that its result depends only on the code.
"""

import asyncio
import os
import re
from collections import Counter
from itertools import chain
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    negative_data_rejection,
    not_a_server_error,
    positive_data_acceptance,
)
from schemathesis.core.failures import FailureGroup

from payintent.core.ids import SESSION, format_id
from payintent.gateways.port import GatewaySessionState, SessionReport
from payintent.http import responses
from payintent.http.docs.documents import read_openapi_document
from payintent.merchants.access_operations import IssueApiKey
from payintent.webhooks.routes import WAIT_MAX_S
from tests.openapi.strict_contract import CONFORMANCE, cases_of_every_rule, operation, operations
from tests.payment_links.link_setup import post_link, token_of
from tests.refunds.requests import post_refund
from tests.support.arrange import DECLINED, bring_to, callback, captured, payment_of, select
from tests.support.conformance import NonconformingError, check
from tests.support.contracts import bill, offer_tokens
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
TIMES = 10 if LONG else 1
REQUESTS_MIN = 2_000
#: The number of requests for each operation; half of them are valid. An operation that has only a
#: path needs few requests.
REQUESTS = {
    "POST /v1/payments": 190,
    "GET /v1/payments": 100,
    "GET /v1/payments/{payment_id}": 50,
    "POST /v1/payments/{payment_id}/cancel": 50,
    "POST /v1/payments/{payment_id}/refunds": 120,
    "GET /v1/payments/{payment_id}/refunds": 50,
    "GET /v1/refunds/{refund_id}": 30,
    "GET /v1/refunds": 50,
    "POST /v1/payment-links": 120,
    "GET /v1/payment-links": 40,
    "GET /v1/payment-links/{link_id}": 30,
    "POST /v1/payment-links/{link_id}/deactivate": 30,
    "GET /v1/events": 50,
    "POST /v1/events/{event_id}/replay": 30,
    "GET /v1/test/clock": 4,
    "POST /v1/test/clock/advance": 30,
    "POST /v1/test/payments/{payment_id}/pay": 30,
    "POST /v1/test/payments/{payment_id}/decline": 30,
    "POST /v1/test/payments/{payment_id}/dispute": 30,
    "POST /v1/test/payments/{payment_id}/transfer": 30,
    "GET /v1/disputes": 40,
    "GET /v1/cases": 50,
    "GET /v1/balance": 4,
    "GET /v1/statements": 40,
    "GET /v1/statements/{statement_id}": 40,
    "GET /v1/catalog": 40,
    "GET /v1/countries": 30,
    "GET /v1/chains/{slug}": 40,
    "POST /v1/onramp/orders": 50,
    "GET /v1/checkout/{checkout_id}": 40,
    "PATCH /v1/checkout/{checkout_id}": 70,
    "GET /v1/checkout/{checkout_id}/quotes": 70,
    "POST /v1/checkout/{checkout_id}/quotes": 120,
    "POST /v1/checkout/{checkout_id}/cancel": 40,
    "GET /v1/checkout/{checkout_id}/events": 40,
    "GET /v1/onchain/sessions/{session_id}": 30,
    "POST /v1/onchain/sessions/{session_id}/transactions": 50,
    "POST /v1/callbacks/{provider}/{account_id}": 50,
    "GET /c/{checkout_id}": 40,
    "POST /c/{checkout_id}/select": 40,
    "POST /c/{checkout_id}/cancel": 30,
    "POST /c/{checkout_id}/test-transfer": 30,
    "GET /c/{checkout_id}/select": 20,
    "GET /c/{checkout_id}/cancel": 20,
    "GET /c/{checkout_id}/return": 20,
    "POST /c/{checkout_id}/return": 20,
    "GET /sdk/{name}": 20,
    "GET /c/{checkout_id}/receipt": 20,
    "GET /c/{checkout_id}/qr.svg": 20,
    "GET /c/{checkout_id}/wallet.svg": 20,
    "GET /c/{checkout_id}/address.svg": 20,
    "GET /c/refund/{code}": 20,
    "POST /c/refund/{code}": 20,
    "GET /c/link/{token}": 20,
    "POST /c/link/{token}": 30,
    "GET /c/link/{token}/qr.svg": 20,
    "GET /c/wallet/open/{code}": 20,
    "GET /c/static/pictures/{name}.webp": 10,
    "GET /c/test/card/{session_id}": 20,
    "POST /c/test/card/{session_id}": 30,
    "GET /c/static/{mark}/{name}": 20,
    "GET /c/static/flags/{name}": 10,
    "GET /healthz": 2,
    "GET /readyz": 2,
    "GET /openapi.yaml": 4,
    "GET /docs": 2,
    "GET /docs/{name}": 20,
    "GET /packages": 2,
    "GET /packages/": 2,
    "GET /packages/{project}/": 10,
    "GET /packages/files/{name}": 10,
}
READS = [name for name in REQUESTS if name.startswith("GET ")]
#: Operations that share a world. An operation that changes data has its own world.
GROUPS = {
    **{name: [name] for name in REQUESTS if name not in READS},
    "reads of the API": [name for name in READS if name.startswith("GET /v1/")],
    "reads of pages": [name for name in READS if not name.startswith("GET /v1/")],
}
CHECKS = [
    not_a_server_error,
    negative_data_rejection,
    positive_data_acceptance,
    *CONFORMANCE,
]
_KEY = read_openapi_document()["components"]["schemas"]["IdempotencyKey"]["pattern"]
SHOP = "https://shop.example.com"
STATUSES = ("PENDING", "PROCESSING", "PAID", "FAILED", "CANCELLED", "EXPIRED")


def test_every_operation_of_the_contract_is_fuzzed() -> None:
    assert set(REQUESTS) == {f"{method} {path}" for method, path, _ in operations()}
    assert sum(REQUESTS.values()) >= REQUESTS_MIN
    assert sorted(chain.from_iterable(GROUPS.values())) == sorted(REQUESTS)


class Ids:
    """Target payments in every status. A `PENDING` payment is recreated after each change."""

    def __init__(
        self,
        api: Api,
        payments: dict[str, Answer],
        session_ids: dict[str, str],
        refund: Answer,
        link: Answer,
    ) -> None:
        self._api = api
        self._known = payments
        self._session_ids = session_ids
        self._refund_id = refund.json["id"]
        self._link_id = link.json["id"]
        self._link_token = token_of(link)
        self._loop = asyncio.get_running_loop()
        self._read: Answer | None = None  # a `PENDING` payment for read operations

    def aim(self, case: Case, status: str) -> None:
        """Replace a generated id with the id of a payment in this status."""
        for name, value in (("payment_id", "id"), ("checkout_id", "checkout_id")):
            if name in case.path_parameters:
                created = self._known.get(status) or self._pending(case.method)
                case.path_parameters[name] = created.json[value]
        if "session_id" in case.path_parameters:  # usually a session that can be paid
            case.path_parameters["session_id"] = self._session_ids.get(
                status, self._session_ids["PROCESSING"]
            )
        if "refund_id" in case.path_parameters:
            case.path_parameters["refund_id"] = self._refund_id
        if "link_id" in case.path_parameters:
            case.path_parameters["link_id"] = self._link_id
        if "token" in case.path_parameters:
            case.path_parameters["token"] = self._link_token
        if "account_id" in case.path_parameters:  # an unsigned callback
            account_id = str(self._api.world.account_id)
            case.path_parameters = {"provider": "fake", "account_id": account_id}

    def _pending(self, method: str) -> Answer:
        if method == "GET" and self._read is not None:
            return self._read
        # Hypothesis runs in a thread, but the service runs in the event loop.
        created = asyncio.run_coroutine_threadsafe(self._api.create(), self._loop).result(20)
        if method == "GET":
            self._read = created
        return created


@pytest.fixture(autouse=True)
def streams_end_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """End event streams immediately, so that requests do not take five minutes."""
    monkeypatch.setattr(responses, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(responses, "STREAM_S", 0.0)


@pytest.fixture
async def ids(api: Api) -> Ids:
    """Create a payment in each status except the first, and register an origin."""
    await api.world.rows("UPDATE merchant SET allowed_origins = $1", [SHOP])
    payments = {"EXPIRED": await api.create(expires_in=1)}
    await api.world.move_clock(2)
    for status in STATUSES[1:-1]:
        payments[status] = await api.create()
        await _bring_to(api, payments[status], status)
    refund = await post_refund(api, payments["PAID"], amount="0.01")
    return Ids(api, payments, await _sessions(api), refund, await post_link(api))


async def _key(api: Api, path: str) -> dict[str, str]:
    """Authorize as the merchant, or as its test merchant if live keys are not accepted."""
    if not path.startswith("/v1/test/"):
        return api.bearer()
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    return api.bearer(issued.api_key)


async def _sessions(api: Api) -> dict[str, str]:
    """Create on-chain sessions: a payable session, and the session of a failed payment."""
    method = (await offer_tokens(api.world))["NATIVED"]
    session_ids: dict[str, str] = {}
    for status in ("PROCESSING", "FAILED"):
        payment, session = await bill(api.world, method)
        session_ids[status] = format_id(SESSION, session.id)
    await api.world.report(payment, session.id, SessionReport(state=GatewaySessionState.DECLINED))
    return session_ids


async def _bring_to(api: Api, created: Answer, status: str) -> None:
    if status in {"CANCELLED", "PROCESSING"}:
        await bring_to(api, created, status)
        return
    assert (await select(api, created)).status == 200
    payment = await payment_of(api, created)
    report = captured() if status == "PAID" else DECLINED
    assert (await callback(api, payment.session_id, report, callback_id=status)).status == 200


@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
async def test_responses_to_generated_requests_conform_to_the_contract(
    api: Api, ids: Ids, names: list[str]
) -> None:
    for name in names:
        await _fuzz(api, ids, name)


def _session() -> requests.Session:
    """Open a session that does not look up proxies and passwords before every request."""
    session = requests.Session()
    session.trust_env = False
    return session


async def _fuzz(api: Api, ids: Ids, name: str) -> None:
    method, _, path = name.partition(" ")
    statuses: Counter[int] = Counter()
    session = _session()
    definition = operation(method, path).definition.raw
    headers = await _key(api, path) if definition.get("security") else {}
    cases = st.one_of(
        operation(method, path).as_strategy(GenerationMode.POSITIVE),
        operation(method, path).as_strategy(GenerationMode.NEGATIVE),
    )

    @settings(
        max_examples=REQUESTS[name] * TIMES,
        deadline=None,
        database=None,
        derandomize=not LONG,
        phases=[Phase.generate, Phase.shrink],
        print_blob=LONG,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, target=st.sampled_from((*STATUSES, "PENDING", "none")))
    def run_requests(case: Case, target: str) -> None:
        _write_integers(case)
        _renew_key(case)
        _fit_to_world(case, api)
        if path.endswith("/refunds") and target == "PENDING":
            target = "PAID"  # which can be refunded repeatedly
        if target != "none":
            ids.aim(case, target)
        answer = case.call_and_validate(
            api.base, session, headers=headers, checks=CHECKS, allow_redirects=False
        )
        _check_response(answer)
        statuses[answer.status_code] += 1

    await asyncio.to_thread(run_requests)
    print(name, dict(statuses))


async def test_every_rule_of_the_contract_is_enforced_separately(api: Api, ids: Ids) -> None:
    """Test each field separately at its limits, because random values rarely pass validation."""
    session = _session()
    problems: list[str] = []
    keys = {
        path: await _key(api, path)
        for _, path, definition in operations()
        if definition["security"]
    }

    def run_requests() -> int:
        request_count = 0
        for method, path, definition in operations():
            headers = keys[path] if definition["security"] else {}
            for case in cases_of_every_rule(method, path):
                _renew_key(case)
                _fit_to_world(case, api)
                ids.aim(case, "PENDING")
                try:
                    answer = case.call_and_validate(
                        api.base, session, headers=headers, checks=CHECKS, allow_redirects=False
                    )
                    _check_response(answer)
                except (FailureGroup, NonconformingError) as failed:
                    rule = case.meta.phase.data.description
                    problems.append(f"{case.method} {path}: {rule}: {failed!r}")
                request_count += 1
        return request_count

    assert await asyncio.to_thread(run_requests) > 500
    assert problems == []


def _check_response(answer: schemathesis.Response) -> None:
    """Check a response against the contract, like every other client in the tests."""
    request = answer.request
    headers = {name: ", ".join(values) for name, values in answer.headers.items()}
    path = unquote(urlsplit(request.url).path)
    check(request.method, path, answer.status_code, headers, answer.content)


def _fit_to_world(case: Case, api: Api) -> None:
    """Adjust valid values to this world, so that the request is processed further."""
    if case.meta.generation.mode is GenerationMode.NEGATIVE:
        return
    for name in ("cursor", "after"):  # an invented opaque cursor is never valid
        case.query.pop(name, None)
    if str(case.query.get("wait", "")).isdecimal() and int(case.query["wait"]) <= WAIT_MAX_S:
        case.query["wait"] = "0"  # no event occurs while the request waits
    body: Any = case.body
    if not isinstance(body, dict):
        return
    method = body.get("payment_method_id")
    if isinstance(method, int | str):
        body["payment_method_id"] = type(method)(api.world.card)
    if isinstance(body.get("method"), str):
        body["method"] = f"{api.world.card}|THB|1590.00"
    body |= {name: f"{SHOP}/thanks" for name in ("return_url", "cancel_url") if body.get(name)}
    if body.get("expected_total_amount"):
        body["expected_total_amount"] = "1590.00"
    if case.path.endswith("/refunds"):
        body["amount"] = "0.01"  # so that the remaining amount suffices for later refunds


def _renew_key(case: Case) -> None:
    """Replace a valid key, because a reused key would hide other errors."""
    key = case.headers.get("Idempotency-Key")
    if key is None:
        return
    # In a valid request, schemathesis sets an optional header with a pattern to "0".
    fits = case.meta.generation.mode is GenerationMode.POSITIVE
    if fits or re.fullmatch(_KEY, key):
        case.headers["Idempotency-Key"] = str(uuid4())


def _write_integers(case: Case) -> None:
    """Write whole numbers without a fraction; unlike JSON Schema, we reject 1.0 as an integer."""
    for container in (case.body, case.query):
        if isinstance(container, dict):
            for name, value in container.items():
                if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
                    container[name] = int(value)
