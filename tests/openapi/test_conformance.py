"""The conformance check of all responses finds the violations that it must find."""

from typing import Any

import aiohttp
import pytest

from payintent.checkout import visits
from payintent.core.errors import ErrorCode, RefusedError
from payintent.payments import routes as payments
from payintent.payments import serialization
from tests.support.conformance import NonconformingError, check
from tests.support.world import Api

_HEADERS = {"X-Request-Id": "abc", "Content-Type": "application/json"}
_PAYMENT = "/v1/payments/pay_0351jQhC8yGkJ1uJxV6Qw5"
_CHECKOUT = "/v1/checkout/cs_8Zk2vQ1mX0rT5LpW"
_GOOD = b'{"status":"ok","version":"1.0.0rc1","api_version":"0.9.9","commit":"unknown"}'


def test_a_declared_response_passes() -> None:
    check("GET", "/healthz", 200, _HEADERS, _GOOD)
    check("HEAD", "/healthz", 200, _HEADERS, b"")
    check("GET", _PAYMENT, 404, _HEADERS, b'{"code":"NOT_FOUND","message":"no such payment"}')
    check("GET", "/nothing", 404, _HEADERS, b'{"code":"NOT_FOUND","message":"no such route"}')


@pytest.mark.parametrize(
    ("path", "status", "changes", "body", "fault"),
    [
        ("/healthz", 201, {}, _GOOD, "the status is not declared"),
        ("/nothing", 200, {}, _GOOD, "the status is not declared"),
        ("/healthz", 200, {}, b'{"status":"ok"}', "required"),
        (
            "/healthz",
            200,
            {},
            _GOOD[:-1] + b',"more":1}',
            "more",
        ),
        ("/healthz", 200, {}, b"{", "not JSON"),
        ("/healthz", 200, {"Content-Type": "text/plain"}, _GOOD, "text/plain is not declared"),
        ("/healthz", 200, {"Set-Cookie": "a=b"}, _GOOD, "set-cookie is not declared"),
        ("/healthz", 200, {"X-Request-Id": "a b"}, _GOOD, "x-request-id is not as declared"),
        (_PAYMENT, 404, {}, b'{"code":"FORBIDDEN","message":"no"}', "FORBIDDEN is not declared"),
        (_PAYMENT, 404, {}, b'{"code":"NOT_FOUND"}', "message"),
        ("/nothing", 404, {}, b'{"code":"BAD_REQUEST","message":"no"}', "of status 404"),
        (f"{_CHECKOUT}/cancel", 200, {}, b'{"status":"cancelled"}', "cached"),
        (_CHECKOUT, 200, {"Cache-Control": "no-store"}, b"{}", "required"),
        (_CHECKOUT, 200, {"Cache-Control": "no-store"}, b'{"fds":{},"status":"PAID"}', "fds"),
    ],
)
def test_an_undeclared_response_is_reported(
    path: str, status: int, changes: dict[str, str], body: bytes, fault: str
) -> None:
    method = "POST" if path.endswith("/cancel") else "GET"
    with pytest.raises(NonconformingError, match=fault):
        check(method, path, status, _HEADERS | changes, body)


def test_a_missing_required_header_is_reported() -> None:
    with pytest.raises(NonconformingError, match="x-request-id is missing"):
        check("GET", "/healthz", 200, {"Content-Type": "application/json"}, _GOOD)
    with pytest.raises(NonconformingError, match="retry-after is missing"):
        check("GET", _PAYMENT, 429, _HEADERS, b'{"code":"RATE_LIMITED","message":"wait"}')


async def test_an_undeclared_response_field_fails_the_test_that_receives_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await api.create()
    make_fields = payments.make_payment_fields
    for module in (payments, serialization):
        monkeypatch.setattr(
            module, "make_payment_fields", lambda *of: make_fields(*of) | {"planted": True}
        )
    with pytest.raises(NonconformingError, match=r"POST /v1/payments: 201: .*planted"):
        await api.create()
    with pytest.raises(NonconformingError, match=r"GET /v1/payments/pay_\w+: 200: .*planted"):
        await api.get(created.json["id"])


async def test_an_undeclared_status_is_reported_for_any_http_client(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_forbidden(*_: Any) -> Any:
        raise RefusedError(ErrorCode.FORBIDDEN, "planted")

    monkeypatch.setattr(visits, "checkout_view", raise_forbidden)
    path = f"{api.base}/v1/checkout/{(await api.create()).json['checkout_id']}"
    async with aiohttp.ClientSession() as client, client.get(path) as answer:
        with pytest.raises(NonconformingError, match="the status is not declared"):
            await answer.json()
