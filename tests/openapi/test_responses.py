"""A successful request to every route returns a response that matches the contract."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from payintent.accounting.close_statements import close_due_days
from payintent.checkout.static_files import static_url
from payintent.core import ids
from payintent.gateways.port import (
    DisputeReport,
    DisputeState,
    GatewayRefundState,
    RefundReport,
    VerifiedCallback,
)
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.runtime.settings import Settings
from tests.openapi.strict_contract import OWN_ACTIONS, conforms, operations
from tests.payment_links.link_setup import post_link, token_of
from tests.payments.test_expire import sweep
from tests.refunds.requests import (
    REFUND,
    REFUNDS,
    create_in_status,
    create_paid,
    get_refund,
    get_refunds,
    post_refund,
    process_refunds,
)
from tests.support.arrange import bring_to, callback, captured, payment_of, select
from tests.support.contracts import TOKENS, offer_deposits, offer_tokens, record_deposit
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

Sending = Callable[[Api, Answer], Awaitable[Answer]]


def _get(path: str) -> Sending:
    async def send_request(api: Api, created: Answer) -> Answer:
        return await api.send("GET", path.format(**_ids(created)), headers=api.bearer())

    return send_request


def _post(path: str, **body: Any) -> Sending:
    async def send_request(api: Api, created: Answer) -> Answer:
        options = {"json": body} if body else {}
        filled = path.format(**_ids(created))
        return await api.send("POST", filled, headers=api.bearer(), **options)

    return send_request


def _ids(created: Answer) -> dict[str, str]:
    return {"payment_id": created.json["id"], "checkout_id": created.json["checkout_id"]}


async def _create(api: Api, created: Answer) -> Answer:
    product = {"name": "A river atlas", "quantity": 1}
    return await api.create(country="TH", metadata={"order_id": "A-1009", "product": product})


async def _select(api: Api, created: Answer) -> Answer:
    return await select(api, created, country="TH", expected_total_amount="1590.00")


async def _patch(api: Api, created: Answer) -> Answer:
    path = f"/v1/checkout/{created.json['checkout_id']}"
    return await api.send("PATCH", path, json={"payer_email": "buyer@example.com"})


async def _callback(api: Api, created: Answer) -> Answer:
    await select(api, created)
    return await callback(api, (await payment_of(api, created)).session_id, captured())


async def _refund(api: Api, created: Answer) -> Answer:
    del created  # it has not been paid
    return await post_refund(api, await create_paid(api), amount="90.00", reason="one page is torn")


async def _list_refunds(api: Api, created: Answer) -> Answer:
    del created
    refunded = await create_paid(api)
    for amount in ("1.00", "2.00"):
        await post_refund(api, refunded, amount=amount)
    return await get_refunds(api, refunded, "?limit=1")


async def _get_refund(api: Api, created: Answer) -> Answer:
    return await get_refund(api, (await _refund(api, created)).json["id"])


async def _list_cases(api: Api, created: Answer) -> Answer:
    del created
    disputed = await payment_of(api, await create_paid(api))
    report = DisputeReport(
        reference="du_1",
        capture=f"cap-{ids.format_id(ids.PAYMENT, disputed.id)}",
        state=DisputeState.OPEN,
        amount_minor=50000,
        currency="THB",
        reason="fraudulent",
        respond_by=disputed.expires_at,
    )
    service = api.world.service
    callback = VerifiedCallback(id="evt_1", dispute=report)
    await service.callback_receiver.receive(api.world.account_id, callback, b"")
    answer = await api.send("GET", "/v1/cases?limit=1", headers=api.bearer())
    assert answer.json["data"][0]["dispute"]["state"] == "open"
    return answer


async def _list_disputes(api: Api, created: Answer) -> Answer:
    await _list_cases(api, created)
    answer = await api.send("GET", "/v1/disputes?limit=1", headers=api.bearer())
    assert answer.json["data"][0]["state"] == "open"
    return answer


async def _get_balance(api: Api, created: Answer) -> Answer:
    del created
    await create_paid(api)
    answer = await api.send("GET", "/v1/balance", headers=api.bearer())
    assert [item["currency"] for item in answer.json["data"]] == ["THB"]
    return answer


async def _list_statements(api: Api, created: Answer) -> Answer:
    del created
    await create_paid(api)
    await api.world.move_clock(24 * 3600)
    service = api.world.service
    while await close_due_days(service.database):
        pass
    answer = await api.send("GET", "/v1/statements?limit=1&currency=THB", headers=api.bearer())
    assert len(answer.json["data"]) == 1
    return answer


async def _get_statement(api: Api, created: Answer) -> Answer:
    statement = (await _list_statements(api, created)).json["data"][0]
    path = f"/v1/statements/{statement['id']}?limit=1"
    answer = await api.send("GET", path, headers=api.bearer())
    lines = answer.json["lines"]
    assert (lines[0]["kind"], answer.json["closing"]) == ("payments", statement["closing"])
    return answer


async def _list_all_refunds(api: Api, created: Answer) -> Answer:
    await _list_refunds(api, created)
    return await api.send("GET", "/v1/refunds?limit=1", headers=api.bearer())


async def _create_link(api: Api, created: Answer) -> Answer:
    return await post_link(api)


async def _list_links(api: Api, created: Answer) -> Answer:
    await post_link(api)
    return await api.send("GET", "/v1/payment-links", headers=api.bearer())


async def _get_link(api: Api, created: Answer) -> Answer:
    link = await post_link(api)
    return await api.send("GET", f"/v1/payment-links/{link.json['id']}", headers=api.bearer())


async def _deactivate_link(api: Api, created: Answer) -> Answer:
    path = f"/v1/payment-links/{(await post_link(api)).json['id']}/deactivate"
    return await api.send("POST", path, headers=api.bearer())


async def _link_page(api: Api, created: Answer) -> Answer:
    return await api.send("GET", f"/c/link/{token_of(await post_link(api))}")


async def _send_link_form(api: Api, created: Answer) -> Answer:
    path = f"/c/link/{token_of(await post_link(api))}"
    return await api.send("POST", path, data={"form": "a"})


async def _link_code(api: Api, created: Answer) -> Answer:
    return await api.send("GET", f"/c/link/{token_of(await post_link(api))}/qr.svg")


async def _list_events(api: Api, created: Answer) -> Answer:
    del created
    await create_paid(api)
    answer = await api.send("GET", "/v1/events?limit=1", headers=api.bearer())
    assert answer.json["data"][0]["event"]["type"].startswith("payment.")
    return answer


async def _replay_event(api: Api, created: Answer) -> Answer:
    event_id = (await _list_events(api, created)).json["data"][0]["id"]
    return await api.send("POST", f"/v1/events/{event_id}/replay", headers=api.bearer())


async def _read_clock(api: Api, created: Answer) -> Answer:
    del created
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    return await api.send("GET", "/v1/test/clock", headers=api.bearer(issued.api_key))


async def _advance_clock(api: Api, created: Answer) -> Answer:
    del created
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    path, headers = "/v1/test/clock/advance", api.bearer(issued.api_key)
    return await api.send("POST", path, json={"seconds": 60}, headers=headers)


async def _act_on_test_payment(api: Api, action: str) -> Answer:
    """Run a test key's action on a new payment, which is paid before it is disputed."""
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    async with Api(api.base, replace(api.world, api_key=issued.api_key)) as side:
        order = {"currency": "USD", "amount": "25.50"} if action == "transfer" else {}
        created = await side.create(**order)
        path = f"/v1/test/payments/{created.json['id']}/"
        if action == "dispute":
            await side.send("POST", path + "pay", headers=side.bearer())
        return await side.send("POST", path + action, headers=side.bearer())


async def _pay_test_payment(api: Api, created: Answer) -> Answer:
    del created
    return await _act_on_test_payment(api, "pay")


async def _decline_test_payment(api: Api, created: Answer) -> Answer:
    del created
    return await _act_on_test_payment(api, "decline")


async def _dispute_test_payment(api: Api, created: Answer) -> Answer:
    del created
    return await _act_on_test_payment(api, "dispute")


async def _transfer_to_test_payment(api: Api, created: Answer) -> Answer:
    del created
    return await _act_on_test_payment(api, "transfer")


async def _send_test_transfer(api: Api, created: Answer) -> Answer:
    """Press the button on a new test payment's deposit page."""
    del created
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    methods = await api.world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    [card] = [method.id for method in methods if method.token == "USDT"]
    world = replace(api.world, api_key=issued.api_key, card=card)
    async with Api(api.base, world) as side:
        payment = await side.create(currency="USD", amount="25.50")
        await select(side, payment)
        path = f"/c/{payment.json['checkout_id']}/test-transfer"
        return await side.send("POST", path, data={"send": "rest"}, allow_redirects=False)


async def _card_page(api: Api, created: Answer, **options: Any) -> Answer:
    """Open the card page of a new test payment, or send its form."""
    del created
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    [method, *_] = await api.world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    world = replace(api.world, api_key=issued.api_key, card=method.id)
    async with Api(api.base, world) as side:
        selected = (await select(side, await side.create())).json
        path = f"/c/test/card/{selected['session']['id']}"
        return await side.send("POST" if options else "GET", path, **options)


async def _send_card(api: Api, created: Answer) -> Answer:
    return await _card_page(api, created, data={"card": "4242424242424242"})


async def _submit_selection(api: Api, created: Answer) -> Answer:
    path = f"/c/{created.json['checkout_id']}/select"
    return await api.send("POST", path, data={"method": f"{api.world.card}|THB|1590.00"})


async def _follow(api: Api, created: Answer) -> Answer:
    """Open the event stream of a cancelled checkout, which ends immediately."""
    path = f"/v1/checkout/{created.json['checkout_id']}"
    await api.send("POST", f"{path}/cancel")
    return await api.send("GET", f"{path}/events")


async def _select_session(api: Api, created: Answer) -> str:
    """Select a token for a new payment; return the path of its session."""
    del created  # it is in THB, which no token is pegged to
    selected = await _select_token(api, "USDT")
    return f"/v1/onchain/sessions/{selected.json['session']['id']}"


async def _select_token(api: Api, token: str) -> Answer:
    methods = await api.world.rows(
        "SELECT id FROM payment_method WHERE token = $1 AND livemode", token
    )
    method = methods[0]["id"] if methods else (await offer_tokens(api.world))[token]
    dollars = await api.create(currency="USD", amount="25.50")
    return await select(api, dollars, payment_method_id=method)


async def _wallet_code(api: Api, created: Answer) -> Answer:
    del created
    checkout_id = (await _select_token(api, "NATIVED")).json["checkout"]["checkout_id"]
    return await api.send("GET", f"/c/{checkout_id}/wallet.svg")


async def _select_deposit(api: Api) -> tuple[Answer, Answer]:
    """Create a payment and select a deposit; return both responses."""
    created = await api.create(currency="USD", amount="25.50")
    methods = await api.world.rows(
        "SELECT id FROM payment_method JOIN chain_contract USING (account_id)"
        " WHERE forwarder IS NOT NULL"
    )
    method = methods[0]["id"] if methods else await offer_deposits(api.world)
    return created, await select(api, created, payment_method_id=method)


async def _address_code(api: Api, created: Answer) -> Answer:
    del created
    created, _ = await _select_deposit(api)
    return await api.send("GET", f"/c/{created.json['checkout_id']}/address.svg")


async def _refund_page(api: Api, created: Answer, **options: Any) -> Answer:
    """Open the refund address page of a deposit, or send its form."""
    del created
    created, selected = await _select_deposit(api)
    session_id = ids.parse_id(ids.SESSION, selected.json["session"]["id"])
    assert session_id is not None
    await record_deposit(api.world, session_id, 255 * 10**17)
    refund = await post_refund(api, created)
    assert refund.status == 201, refund.body
    refund_id = ids.parse_id(ids.REFUND, refund.json["id"])
    assert refund_id is not None
    code = api.world.service.refund_address_links.create_code(refund_id)
    return await api.send("POST" if options else "GET", f"/c/refund/{code}", **options)


async def _send_refund_address(api: Api, created: Answer) -> Answer:
    return await _refund_page(api, created, data={"address": f"0x{'a1' * 20}"})


async def _open_in_wallet(api: Api, created: Answer) -> Answer:
    link = (await _get_session(api, created)).json["links"]["metamask"]
    return await api.send("GET", "/c/wallet/open/" + link.rpartition("/")[2])


async def _get_session(api: Api, created: Answer) -> Answer:
    return await api.send("GET", await _select_session(api, created))


async def _post_transaction(api: Api, created: Answer) -> Answer:
    path = f"{await _select_session(api, created)}/transactions"
    return await api.send("POST", path, json={"tx_hash": "0x" + 64 * "A", "step": "pay"})


SUCCESSFUL_REQUESTS: dict[str, tuple[int, Sending]] = {
    "POST /v1/payments": (201, _create),
    "GET /v1/payments": (200, _get("/v1/payments?limit=1")),
    "GET /v1/payments/{payment_id}": (200, _get("/v1/payments/{payment_id}")),
    "POST /v1/payments/{payment_id}/cancel": (200, _post("/v1/payments/{payment_id}/cancel")),
    "POST /v1/payments/{payment_id}/refunds": (201, _refund),
    "GET /v1/payments/{payment_id}/refunds": (200, _list_refunds),
    "GET /v1/refunds/{refund_id}": (200, _get_refund),
    "GET /v1/refunds": (200, _list_all_refunds),
    "POST /v1/payment-links": (201, _create_link),
    "GET /v1/payment-links": (200, _list_links),
    "GET /v1/payment-links/{link_id}": (200, _get_link),
    "POST /v1/payment-links/{link_id}/deactivate": (200, _deactivate_link),
    "GET /v1/events": (200, _list_events),
    "POST /v1/events/{event_id}/replay": (202, _replay_event),
    "GET /v1/cases": (200, _list_cases),
    "GET /v1/disputes": (200, _list_disputes),
    "GET /v1/balance": (200, _get_balance),
    "GET /v1/statements": (200, _list_statements),
    "GET /v1/statements/{statement_id}": (200, _get_statement),
    "GET /v1/test/clock": (200, _read_clock),
    "POST /v1/test/clock/advance": (200, _advance_clock),
    "POST /v1/test/payments/{payment_id}/pay": (200, _pay_test_payment),
    "POST /v1/test/payments/{payment_id}/decline": (200, _decline_test_payment),
    "POST /v1/test/payments/{payment_id}/dispute": (200, _dispute_test_payment),
    "POST /v1/test/payments/{payment_id}/transfer": (200, _transfer_to_test_payment),
    "GET /v1/catalog": (200, _get("/v1/catalog")),
    "GET /v1/countries": (200, _get("/v1/countries")),
    "GET /v1/chains/{slug}": (200, _get("/v1/chains/native")),
    "POST /v1/onramp/orders": (501, _post("/v1/onramp/orders", country="TH")),
    "GET /v1/checkout/{checkout_id}": (200, _get("/v1/checkout/{checkout_id}")),
    "PATCH /v1/checkout/{checkout_id}": (200, _patch),
    "GET /v1/checkout/{checkout_id}/quotes": (200, _get("/v1/checkout/{checkout_id}/quotes")),
    "POST /v1/checkout/{checkout_id}/quotes": (200, _select),
    "POST /v1/checkout/{checkout_id}/cancel": (200, _post("/v1/checkout/{checkout_id}/cancel")),
    "GET /v1/checkout/{checkout_id}/events": (200, _follow),
    "GET /v1/onchain/sessions/{session_id}": (200, _get_session),
    "POST /v1/onchain/sessions/{session_id}/transactions": (202, _post_transaction),
    "POST /v1/callbacks/{provider}/{account_id}": (200, _callback),
    "GET /c/{checkout_id}": (200, _get("/c/{checkout_id}")),
    "POST /c/{checkout_id}/select": (303, _submit_selection),
    "POST /c/{checkout_id}/test-transfer": (303, _send_test_transfer),
    "POST /c/{checkout_id}/cancel": (303, _post("/c/{checkout_id}/cancel")),
    "GET /c/{checkout_id}/select": (200, _get("/c/{checkout_id}/select")),
    "GET /c/{checkout_id}/cancel": (200, _get("/c/{checkout_id}/cancel")),
    "GET /c/{checkout_id}/return": (303, _get("/c/{checkout_id}/return")),
    "POST /c/{checkout_id}/return": (303, _post("/c/{checkout_id}/return")),
    "GET /c/{checkout_id}/receipt": (303, _get("/c/{checkout_id}/receipt")),
    "GET /c/{checkout_id}/qr.svg": (200, _get("/c/{checkout_id}/qr.svg")),
    "GET /c/{checkout_id}/wallet.svg": (200, _wallet_code),
    "GET /c/{checkout_id}/address.svg": (200, _address_code),
    "GET /c/refund/{code}": (200, _refund_page),
    "POST /c/refund/{code}": (303, _send_refund_address),
    "GET /c/link/{token}": (200, _link_page),
    "POST /c/link/{token}": (303, _send_link_form),
    "GET /c/link/{token}/qr.svg": (200, _link_code),
    "GET /c/test/card/{session_id}": (200, _card_page),
    "POST /c/test/card/{session_id}": (303, _send_card),
    "GET /c/wallet/open/{code}": (303, _open_in_wallet),
    "GET /c/static/pictures/{name}.webp": (404, _get("/c/static/pictures/x.webp")),
    "GET /c/static/{mark}/{name}": (200, _get(static_url("checkout.css"))),
    "GET /c/static/flags/{name}": (200, _get("/c/static/flags/th.svg")),
    "GET /healthz": (200, _get("/healthz")),
    "GET /readyz": (200, _get("/readyz")),
    "GET /openapi.yaml": (200, _get("/openapi.yaml")),
    "GET /docs": (200, _get("/docs")),
    "GET /sdk/{name}": (200, _get("/sdk/v1.js")),
    "GET /docs/{name}": (200, _get("/docs/reference")),
    "GET /packages": (308, _get("/packages")),
    "GET /packages/": (200, _get("/packages/")),
    "GET /packages/{project}/": (404, _get("/packages/payintent-sdk/")),
    "GET /packages/files/{name}": (404, _get("/packages/files/payintent-sdk.tgz")),
}


SCREENED = [
    "POST /v1/payments",
    *(name for name in SUCCESSFUL_REQUESTS if " /v1/checkout/" in name),
]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"policy_cache_s": 0.0})


def test_every_operation_has_a_successful_request() -> None:
    assert set(SUCCESSFUL_REQUESTS) == {f"{method} {path}" for method, path, _ in operations()}


async def test_every_response_conforms_to_the_contract(api: Api) -> None:
    for name, (status, sending) in SUCCESSFUL_REQUESTS.items():
        method, _, path = name.partition(" ")
        answer = await sending(api, await api.create())
        assert answer.status == status, name
        conforms(method, path, answer)


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "PAID", "FAILED", "EXPIRED"])
async def test_a_payment_in_every_status_conforms_to_the_contract(api: Api, status: str) -> None:
    created = await api.create(metadata={"order_id": "A-1"}, payer_email="buyer@example.com")
    await bring_to(api, created, status)
    for path in ("/v1/payments/{payment_id}", "/v1/checkout/{checkout_id}"):
        answer = conforms("GET", path, await _get(path)(api, created))
        assert answer.json["status"] == status


@pytest.mark.parametrize("status", ["PARTIALLY_REFUNDED", "REFUNDED"])
async def test_a_refunded_payment_conforms_to_the_contract(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    for path in ("/v1/payments/{payment_id}", "/v1/checkout/{checkout_id}"):
        answer = conforms("GET", path, await _get(path)(api, created))
        assert answer.json["status"] == status


@pytest.mark.parametrize(
    "state", [GatewayRefundState.DONE, GatewayRefundState.PENDING, GatewayRefundState.DECLINED]
)
async def test_a_refund_in_every_status_conforms_to_the_contract(
    api: Api, state: GatewayRefundState
) -> None:
    api.world.gateway.answer_refund = RefundReport(state=state, reference="re-1")
    key, created = str(uuid4()), await create_paid(api)
    first = conforms("POST", REFUNDS, await post_refund(api, created, key))
    await process_refunds(api.world)
    refund = conforms("GET", REFUND, await get_refund(api, first.json["id"]))
    assert (refund.json["status"] == "FAILED") is (state is GatewayRefundState.DECLINED)
    conforms("GET", REFUNDS, await get_refunds(api, created))
    replayed = conforms("POST", REFUNDS, await post_refund(api, created, key))
    assert (replayed.body, replayed.headers["Idempotency-Replayed"]) == (first.body, "true")


async def test_without_a_gateway_action_the_service_returns_its_own_next_action(
    api: Api,
) -> None:
    """The first checkout has no selection, and the second waits for its session to be closed."""
    pending, elapsed = await api.create(), await api.create(expires_in=60)
    assert (await select(api, elapsed)).status == 200
    await api.world.move_clock(60)
    await sweep(api.world)
    action_types = set[str]()
    for created in (pending, elapsed):
        answer = await _get("/v1/checkout/{checkout_id}")(api, created)
        conforms("GET", "/v1/checkout/{checkout_id}", answer)
        action_types.add(answer.json["next_action"]["type"])
    assert action_types == OWN_ACTIONS


async def test_a_replayed_response_has_the_documented_header(api: Api) -> None:
    key = str(uuid4())
    await api.create(key=key)
    replayed = conforms("POST", "/v1/payments", await api.create(key=key))
    assert replayed.headers["Idempotency-Replayed"] == "true"


async def test_an_unchanged_resource_returns_304_without_a_body(api: Api) -> None:
    for path in ("/v1/catalog", "/v1/countries", "/openapi.yaml"):
        first = await api.send("GET", path, headers=api.bearer())
        headers = api.bearer() | {"If-None-Match": first.headers["ETag"]}
        response = conforms("GET", path, await api.send("GET", path, headers=headers))
        assert (response.status, response.body) == (304, b""), path
        assert response.headers["ETag"] == first.headers["ETag"]


async def _add_fraud_rule(api: Api) -> None:
    await api.world.rows(
        "INSERT INTO fraud_rule (kind, value, code, level, score) "
        "VALUES ('PAYER', 'buyer-1', 'PAYER_BLOCKED', 'HIGH', 90)"
    )


async def test_every_screened_route_returns_200_for_a_denial(api: Api) -> None:
    created = await api.create()
    await _add_fraud_rule(api)
    for name in SCREENED:
        method, _, path = name.partition(" ")
        answer = conforms(method, path, await SUCCESSFUL_REQUESTS[name][1](api, created))
        assert answer.status == 200, name
        assert list(answer.json) == ["fds"], name
        assert answer.json["fds"]["outcome"] == "DENY"


async def test_rate_limit_headers_conform_to_the_contract(api: Api) -> None:
    await api.world.rows(
        "INSERT INTO rate_limit (merchant_id, class, per_s, burst) VALUES ($1, 'read', 500, 1000)",
        api.world.merchant_id,
    )
    path = "/v1/payments/{payment_id}"
    answer = conforms("GET", path, await _get(path)(api, await api.create()))
    assert answer.headers["RateLimit-Policy"] == '"read";q=500;w=1'


@pytest.mark.parametrize("chain", TOKENS)
async def test_chains_and_their_sessions_conform_to_the_contract_for_every_token(
    api: Api, chain: str
) -> None:
    methods = await offer_tokens(api.world, chain)
    path = "/v1/chains/{slug}"
    assert conforms("GET", path, await api.send("GET", f"/v1/chains/{chain}")).status == 200
    for token, method in methods.items():
        created = await api.create(currency="USD", amount="25.50")
        selected = await select(api, created, payment_method_id=method)
        conforms("POST", "/v1/checkout/{checkout_id}/quotes", selected)
        next_action = selected.json["next_action"]
        assert (next_action["type"], next_action["onchain_session"]["chain"]) == (
            "onchain_session",
            chain,
        )
        quote = selected.json["quote"]
        assert [quote[name] for name in ("kind", "chain", "token")] == ["onchain", chain, token]
        session = f"/v1/onchain/sessions/{selected.json['session']['id']}"
        answer = await api.send("GET", session)
        conforms("GET", "/v1/onchain/sessions/{session_id}", answer)
        assert answer.json["token"]["symbol"] == token
        payment = (await api.get(created.json["id"])).json
        assert (payment["currency"], payment["quote_currency"]) == ("USD", token)
