"""Every response has a request id; responses to buyers are not cached and allow CORS."""

import asyncio
import re
import threading
from unittest.mock import Mock

from payintent.http.middleware import metrics_route
from tests.support.arrange import bring_to, quotes, refusal, select, view
from tests.support.world import Answer, Api

_UNKNOWN = "cs_" + "0" * 16


async def test_a_valid_request_id_is_returned_and_an_invalid_request_id_is_replaced(
    api: Api,
) -> None:
    for valid in ("a", "A-z_0.9", "x" * 128, "3f2504e0-4f89-41d3-9a0c-0305e82c3301"):
        answer = await api.send("GET", "/healthz", headers={"X-Request-Id": valid})
        assert answer.headers["X-Request-Id"] == valid
    request_ids = set()
    for invalid in (None, "", "x" * 129, "a b", "a;b", "<script>", "\u00e9", "a/b"):
        headers = {} if invalid is None else {"X-Request-Id": invalid}
        answer = await api.send("GET", "/healthz", headers=headers)
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["X-Request-Id"]), invalid
        request_ids.add(answer.headers["X-Request-Id"])
    assert len(request_ids) == 8


async def test_the_event_loop_runs_while_metrics_are_formatted() -> None:
    has_continued = threading.Event()

    def format_metrics() -> bytes:
        assert has_continued.wait(5)
        return b"metrics"

    scrape = asyncio.create_task(metrics_route(format_metrics).endpoint(Mock()))
    await asyncio.sleep(0)
    has_continued.set()
    assert (await scrape).body == b"metrics"


async def test_error_responses_have_a_request_id(api: Api) -> None:
    for method, path in (
        ("GET", "/nowhere"),
        ("PUT", "/v1/payments"),
        ("POST", "/v1/payments"),
        ("GET", f"/v1/checkout/{_UNKNOWN}"),
        ("POST", "/v1/callbacks/fake/99"),
        ("GET", f"/c/{_UNKNOWN}"),
    ):
        answer = await api.send(method, path, headers={"X-Request-Id": "mine"})
        assert answer.status >= 400
        assert answer.headers.getall("X-Request-Id") == ["mine"], path


async def test_unknown_routes_and_methods_get_json_errors(api: Api) -> None:
    for path in (
        *("/", "//", "/v1", "/v1/", "/v2/payments", "/V1/payments", "/v1/checkout/", "/nowhere"),
        *("/v1/payments/", "/v1/payments/a/b", "/v1/payments/%2F", "/c", "/c/", "/healthz/"),
    ):
        answer = await api.send("GET", path, headers=api.bearer())
        assert refusal(answer) == (404, "NOT_FOUND"), path
    for method, path, allowed in (
        ("PUT", "/v1/payments", "GET, HEAD, POST"),
        ("DELETE", "/v1/checkout/cs_x", "GET, HEAD, PATCH"),
        ("DELETE", "/v1/payments/pay_x", "GET"),
        ("GET", "/v1/payments/pay_x/cancel", "POST"),
        ("POST", "/healthz", "GET"),
        ("GET", "/v1/callbacks/fake/1", "POST"),
        ("OPTIONS", "/v1/payments", "POST"),
    ):
        answer = await api.send(method, path, headers=api.bearer())
        assert refusal(answer) == (405, "BAD_REQUEST"), path
        assert allowed in answer.headers["Allow"], path
        if not path.startswith("/v1/checkout"):
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_checkout_responses_are_not_cached_and_allow_cors(api: Api) -> None:
    created = await api.create()
    cancelled = await api.create()
    await bring_to(api, cancelled, "CANCELLED")
    checkout = f"/v1/checkout/{created.json['checkout_id']}"
    answers = [
        await view(api, created),
        await quotes(api, created),
        await select(api, created),
        await view(api, cancelled),
        await quotes(api, cancelled),
        await api.send("GET", f"/v1/checkout/{_UNKNOWN}"),
        await api.send("PATCH", checkout, json={"payer_email": "nobody"}),
        await api.send("PATCH", checkout, data=b"x"),
        await api.send("DELETE", checkout),
        await api.send("GET", f"{checkout}/nowhere"),
        await api.send("POST", f"{checkout}/cancel"),
        await api.send("POST", f"{checkout}/quotes", data=b"x" * 70_000),
    ]
    assert [answer.status for answer in answers] == [
        *(200, 200, 200, 200, 409, 404, 400, 415, 405, 404, 409, 413)
    ]
    for answer in answers:
        assert answer.headers.getall("Cache-Control") == ["no-store"]
        assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
        assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]
        assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_cors_preflights_are_allowed_only_on_checkout_api_routes(api: Api) -> None:
    headers = {
        "Origin": "https://shop.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    answer = await api.send("OPTIONS", f"/v1/checkout/{_UNKNOWN}/quotes", headers=headers)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert set(answer.headers["Access-Control-Allow-Methods"].split(", ")) >= {"POST", "PATCH"}
    assert "Content-Type" in answer.headers["Access-Control-Allow-Headers"]
    for path in ("/v1/payments", "/v1/callbacks/fake/1", f"/c/{_UNKNOWN}/select"):
        assert _cors_headers(await api.send("OPTIONS", path, headers=headers)) == []


async def test_merchant_responses_do_not_allow_cors(api: Api) -> None:
    created = await api.create()
    assert _cors_headers(created) == []
    assert _cors_headers(await api.get(created.json["id"])) == []


def _cors_headers(answer: Answer) -> list[str]:
    return [name for name in answer.headers if name.startswith("Access-Control-")]
