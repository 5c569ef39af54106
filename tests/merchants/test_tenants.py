"""Every merchant route rejects invalid keys and requests for objects of a different merchant."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from starlette.requests import Request
from starlette.routing import Route

from payintent.core import access as api_key
from payintent.core.errors import RefusedError
from payintent.http.address_limits import AuthenticationAttempts
from payintent.http.viewer import ViewerReader
from payintent.merchants.access import Authenticator
from payintent.merchants.access_operations import IssueApiKey, RevokeApiKey
from payintent.merchants.call_log import KeyUses
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.payment_links.link_setup import post_link
from tests.refunds.requests import create_paid
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import BODY, payment_of, refusal, select
from tests.support.routes import ROUTES
from tests.support.running_service import serving_api
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api, World

_UNAUTHORIZED = (401, "UNAUTHORIZED")
_FORBIDDEN = (403, "FORBIDDEN")
_NOT_FOUND = (404, "NOT_FOUND")

#: Routes that need a merchant's key, and their error if the object belongs to a different merchant.
_ROUTES: dict[tuple[str, str], tuple[int, str] | None] = {
    ("POST", "/v1/payments"): None,
    ("GET", "/v1/payments"): None,
    ("GET", "/v1/payments/{payment_id}"): _FORBIDDEN,
    ("POST", "/v1/payments/{payment_id}/cancel"): _FORBIDDEN,
    ("POST", "/v1/payments/{payment_id}/refunds"): _FORBIDDEN,
    ("GET", "/v1/payments/{payment_id}/refunds"): _FORBIDDEN,
    ("GET", "/v1/refunds/{refund_id}"): _FORBIDDEN,
    ("GET", "/v1/refunds"): None,
    ("POST", "/v1/payment-links"): None,
    ("GET", "/v1/payment-links"): None,
    ("GET", "/v1/payment-links/{link_id}"): _FORBIDDEN,
    ("POST", "/v1/payment-links/{link_id}/deactivate"): _FORBIDDEN,
    ("GET", "/v1/events"): None,
    ("POST", "/v1/events/{event_id}/replay"): _NOT_FOUND,
    ("GET", "/v1/cases"): None,
    ("GET", "/v1/disputes"): None,
    ("GET", "/v1/balance"): None,
    ("GET", "/v1/statements"): None,
    ("GET", "/v1/statements/{statement_id}"): _NOT_FOUND,
    ("GET", "/v1/catalog"): None,
    ("GET", "/v1/test/clock"): None,
    ("POST", "/v1/test/clock/advance"): None,
    ("POST", "/v1/test/payments/{payment_id}/pay"): None,  # only for test keys
    ("POST", "/v1/test/payments/{payment_id}/decline"): None,
    ("POST", "/v1/test/payments/{payment_id}/dispute"): None,
    ("POST", "/v1/test/payments/{payment_id}/transfer"): None,
}
#: Public routes, routes with a secret id in the URL, and callbacks signed by a gateway.
_OPEN = {
    ("POST", "/v1/callbacks/{provider}/{account_id}"),
    ("GET", "/v1/checkout/{checkout_id}"),
    ("PATCH", "/v1/checkout/{checkout_id}"),
    ("GET", "/v1/checkout/{checkout_id}/quotes"),
    ("POST", "/v1/checkout/{checkout_id}/quotes"),
    ("POST", "/v1/checkout/{checkout_id}/cancel"),
    ("GET", "/v1/checkout/{checkout_id}/events"),
    ("GET", "/v1/countries"),
    ("GET", "/v1/chains/{slug}"),
    ("GET", "/v1/onchain/sessions/{session_id}"),
    ("POST", "/v1/onchain/sessions/{session_id}/transactions"),
    ("POST", "/v1/onramp/orders"),
}


def test_every_route_under_v1_is_listed_in_one_of_the_tables() -> None:
    routes = {
        (method, route.path)
        for route in ROUTES
        if isinstance(route, Route) and route.path.startswith("/v1/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == set(_ROUTES) | _OPEN


async def _make_invalid_headers(world: World) -> dict[str, dict[str, str]]:
    """Return all kinds of invalid `Authorization` headers."""
    key = world.api_key
    revoked = (await world.perform(IssueApiKey(merchant_id=world.merchant_id))).api_key
    await world.perform(RevokeApiKey(public_id=revoked.split("_")[2]))
    last = "0" if key[-1] != "0" else "1"
    texts = {
        "malformed": key[:-1],
        "wrong checksum": key[:-1] + last,
        "revoked": revoked,
        "unknown": api_key.make_api_key(api_key.MERCHANT, "A" * 8, "A" * 43).text,
        "another secret": api_key.make_api_key(api_key.MERCHANT, key.split("_")[2], "A" * 43).text,
        "operator": await world.operator_token(),
        "test key": api_key.make_api_key("sk_test", key.split("_")[2], "A" * 43).text,
    }
    return {"none": {}} | {
        name: {"Authorization": f"Bearer {text}"} for name, text in texts.items()
    }


async def _request(
    api: Api,
    route: tuple[str, str],
    payment_id: str,
    headers: dict[str, str],
    refund_id: str = "",
    event_id: str = "",
    *,
    link_id: str = "",
) -> Answer:
    """Send a request. If no refund, event or link is given, use an unknown id."""
    method, path = route
    options: dict[str, Any] = {"headers": headers | {"Idempotency-Key": str(uuid4())}}
    if route == ("POST", "/v1/payments"):
        options["json"] = BODY
    refund_id = refund_id or payment_id.replace("pay_", "ref_")
    names = {"payment_id": payment_id, "refund_id": refund_id, "event_id": event_id or payment_id}
    names["link_id"] = link_id or payment_id.replace("pay_", "plink_")
    names["statement_id"] = payment_id.replace("pay_", "stmt_")
    url = path.format_map(names)
    return await api.send(method, url, **options)


async def test_an_invalid_key_gets_401_from_every_route(api: Api) -> None:
    payment_id = (await api.create()).json["id"]
    for name, headers in (await _make_invalid_headers(api.world)).items():
        for route in _ROUTES:
            for requested_id in (payment_id, "pay_" + "0" * 22, "x"):
                answer = await _request(api, route, requested_id, headers)
                assert refusal(answer) == _UNAUTHORIZED, (name, route)
    assert (await api.get(payment_id)).json["status"] == "PENDING"
    [row] = await api.world.rows("SELECT count(*) AS n FROM payment")
    assert row["n"] == 1


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "CANCELLED"])
async def test_the_key_of_another_merchant_is_rejected_by_every_object_route(
    api: Api, status: str
) -> None:
    created = await api.create()
    payment_id = created.json["id"]
    if status == "PROCESSING":
        assert (await select(api, created)).status == 200
    if status == "CANCELLED":
        path = f"/v1/payments/{payment_id}/cancel"
        assert (await api.send("POST", path, headers=api.bearer())).status == 200
    refund_id = (await refund(api, await create_paid(api))).json["id"]
    link_id = (await post_link(api)).json["id"]
    [event, *_] = await api.world.rows("SELECT id FROM event")
    other_merchant = await api.world.add_merchant()
    headers = api.bearer(other_merchant.api_key)
    for route, expected in _ROUTES.items():
        if expected is not None:
            answer = await _request(
                api, route, payment_id, headers, refund_id, str(event["id"]), link_id=link_id
            )
            assert refusal(answer) == expected, route
            unknown = await _request(
                api, route, "pay_" + "0" * 22, api.bearer(other_merchant.api_key)
            )
            assert refusal(unknown) == (404, "NOT_FOUND"), route
    assert (await api.get(payment_id)).json["status"] == status


async def test_a_list_contains_only_payments_of_its_merchant(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    other_headers = api.bearer(other_merchant.api_key)
    payments = [(await api.create(payer_uid="shared")).json for _ in range(3)]
    assert (await api.send("GET", "/v1/payments", headers=other_headers)).json == {"data": []}
    route = ("POST", "/v1/payments")
    created = (await _request(api, route, "", other_headers)).json
    for query in ("", "?payer_uid=shared", "?payer_uid=buyer-1", "?status=PENDING", "?limit=1"):
        page = await api.send("GET", f"/v1/payments{query}", headers=other_headers)
        assert {item["id"] for item in page.json["data"]} <= {created["id"]}
        for payment in payments:
            assert payment["id"].encode() not in page.body
            assert payment["checkout_id"].encode() not in page.body


async def test_a_cursor_from_another_merchants_list_returns_only_own_payments(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    created = (
        await _request(api, ("POST", "/v1/payments"), "", api.bearer(other_merchant.api_key))
    ).json
    for _ in range(2):
        await api.create()
    first = await api.send("GET", "/v1/payments?limit=1", headers=api.bearer())
    path = f"/v1/payments?cursor={first.json['next_cursor']}"
    page = await api.send("GET", path, headers=api.bearer(other_merchant.api_key))
    assert [item["id"] for item in page.json["data"]] == [created["id"]]


async def test_an_idempotency_key_belongs_to_its_merchant(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    key = str(uuid4())
    first = await api.create(key)
    headers = api.bearer(other_merchant.api_key) | {"Idempotency-Key": key}
    second = await api.send("POST", "/v1/payments", json=BODY, headers=headers)
    assert (first.status, second.status) == (201, 201)
    assert first.json["id"] != second.json["id"]
    assert "Idempotency-Replayed" not in second.headers


async def test_a_catalog_belongs_to_its_merchant(api: Api) -> None:
    without_methods = await api.world.add_merchant(methods="none")
    own_catalog = await api.send("GET", "/v1/catalog", headers=api.bearer())
    other_catalog = await api.send(
        "GET",
        "/v1/catalog",
        headers=api.bearer(without_methods.api_key)
        | {"If-None-Match": own_catalog.headers["ETag"]},
    )
    assert (other_catalog.status, other_catalog.json["countries"]) == (200, [])
    assert own_catalog.json["countries"] != []


_CHECKOUT = [
    ("GET", "/v1/checkout/{}"),
    ("PATCH", "/v1/checkout/{}"),
    ("GET", "/v1/checkout/{}/quotes"),
    ("POST", "/v1/checkout/{}/quotes"),
    ("POST", "/v1/checkout/{}/cancel"),
    ("GET", "/c/{}"),
    ("POST", "/c/{}/select"),
    ("POST", "/c/{}/cancel"),
    ("GET", "/c/{}/return"),
]


async def test_a_checkout_can_be_accessed_only_with_its_exact_id(api: Api) -> None:
    created = (await api.create()).json
    checkout_id = created["checkout_id"]
    last_letter = "A" if checkout_id[-1] != "A" else "B"
    for wrong_id in (
        checkout_id[:-1] + last_letter,
        checkout_id[:-1],
        checkout_id + "0",
        checkout_id.swapcase(),
        created["id"],
        created["id"].replace("pay_", "cs_"),
        "cs_" + "0" * 16,
    ):
        for method, path in _CHECKOUT:
            for headers in ({}, api.bearer()):  # even with the merchant's key
                answer = await api.send(method, path.format(wrong_id), headers=headers)
                assert answer.status == 404, (method, path, wrong_id)
                if path.startswith("/v1/"):
                    assert refusal(answer) == (404, "CHECKOUT_NOT_FOUND")
    assert (
        await api.send("GET", f"/v1/payments/{checkout_id}", headers=api.bearer())
    ).status == 404


async def test_a_checkout_needs_no_key_and_ignores_invalid_keys(api: Api) -> None:
    checkout_id = (await api.create()).json["checkout_id"]
    path = f"/v1/checkout/{checkout_id}"
    plain = await api.send("GET", path)
    for headers in (await _make_invalid_headers(api.world)).values():
        response = await api.send("GET", path, headers=headers)
        assert response.json | {"server_time": ""} == plain.json | {"server_time": ""}


async def test_a_method_of_another_merchant_cannot_be_selected(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    rows = await api.world.rows(
        "SELECT id FROM payment_method WHERE merchant_id = $1", other_merchant.merchant.id
    )
    created = await api.create()
    for row in rows:
        selection = await select(api, created, payment_method_id=row["id"])
        assert refusal(selection) == (404, "PAYMENT_METHOD_NOT_FOUND")
    assert (await payment_of(api, created)).status == "PENDING"


@asynccontextmanager
async def _process(world: World, settings: Settings) -> AsyncIterator[Api]:
    """Serve the API with a separate service, like a second process."""
    service = await open_service(settings, {"fake": world.gateway})
    async with serving_api(settings, replace(world, service=service)) as api:
        yield api


async def _wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_every_process_sees_a_revocation(world: World) -> None:
    """Keys are cached for the default time."""
    settings = world.service.settings.model_copy(
        update={"api_key_cache_s": Settings.model_fields["api_key_cache_s"].default}
    )
    async with AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(_process(world, settings)) for _ in range(2)]
        for api in apis:
            assert (await api.create()).status == 201  # each process caches the key
        await world.perform(RevokeApiKey(public_id=world.api_key.split("_")[2]))
        for api in apis:

            async def is_refused(api: Api = api) -> bool:
                return (await api.create()).status == 401

            await _wait_until(is_refused)
            assert (await api.create()).status == 401  # it stays revoked


async def test_a_cached_key_expires_after_the_configured_time(world: World) -> None:
    now = 100.0
    service = world.service
    attempts = AuthenticationAttempts(service.settings, ViewerReader(service.settings))
    authenticator = Authenticator(
        service.database,
        service.encryption,
        service.accounts,
        attempts,
        1.0,
        lambda: now,
        key_uses=KeyUses(world.database),
    )
    key = f"Bearer {world.api_key}".encode()
    request = Request({"type": "http", "headers": [(b"authorization", key)], "client": None})
    assert (await authenticator.authenticate(request)).merchant_id == world.merchant_id
    await world.perform(RevokeApiKey(public_id=world.api_key.split("_")[2]))
    now = 100.9
    assert (await authenticator.authenticate(request)).merchant_id == world.merchant_id
    now = 101.0
    with pytest.raises(RefusedError):
        await authenticator.authenticate(request)
