import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from payintent.core import ids
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    Gateway,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
    SessionRejected,
    SessionReport,
)
from payintent.gateways.simulator import SimulatorGateway
from tests.gateways.raw_server import reply, serve_responses
from tests.sandbox.simulator.simulator_setup import (
    KEY,
    OTHER_KEY,
    OTHER_SECRET,
    RETURN_URL,
    SECRET,
    Merchant,
    Received,
    Shop,
    running_simulator,
)

APPROVED = "4242424242424242"
DECLINED = "4000000000000002"
PROCESSING_ERROR = "4000000000000119"
CHALLENGE = "4000002500003155"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def http() -> AsyncGenerator[GatewayHttpClient]:
    http = GatewayHttpClient(timeout_s=5, response_bytes_max=64 * 1024)
    yield http
    await http.close()


@pytest.fixture
def gateway(http: GatewayHttpClient) -> SimulatorGateway:
    return SimulatorGateway(http)


@pytest.fixture
def account(simulator_url: str) -> GatewayAccount:
    return account_at(simulator_url)


def account_at(url: str, key: str = KEY, secret: str = SECRET) -> GatewayAccount:
    credentials = {"api_key": key, "signing_secret": secret}
    return GatewayAccount(id=1, provider="simulator", base_url=url, credentials=credentials)


@pytest.fixture
def request_(merchant: Merchant) -> GatewaySessionRequest:
    return GatewaySessionRequest(
        session_id=uuid4(),
        amount_minor=159_000,
        currency="THB",
        kind="card",
        country="TH",
        description="A book",
        opened_at=datetime.now(UTC),
        expires_at=datetime.now(UTC) + timedelta(minutes=30),
        return_url=RETURN_URL,
        callback_url=merchant.url,
        locale="th",
    )


async def open_session(
    gateway: Gateway, account: GatewayAccount, request: GatewaySessionRequest
) -> SessionCreated:
    session = await gateway.create_session(account, request)
    assert isinstance(session, SessionCreated), session
    return session


def ref(
    request: GatewaySessionRequest, created_session: SessionCreated | None = None
) -> GatewaySessionRef:
    return session_ref(request.session_id, created_session.reference if created_session else None)


def session_ref(session_id: UUID, reference: str | None = None) -> GatewaySessionRef:
    return GatewaySessionRef(
        session_id=session_id,
        reference=reference,
        amount_minor=159_000,
        currency="THB",
        opened_at=datetime.now(UTC),
    )


def fresh_reference() -> str:
    return ids.format_id(ids.SESSION, uuid4())


async def pay(shop: Shop, created_session: SessionCreated, card: str) -> None:
    reply = await shop.pay({"pay_url": created_session.next_action["redirect"]["url"]}, card)
    assert reply.status == 303


def as_callback(received: Received, **changes: object) -> CallbackRequest:
    request = CallbackRequest(method="POST", headers=received.headers, query={}, body=received.body)
    return replace(request, **changes)  # type: ignore[arg-type]


async def test_a_session_opens_and_the_buyer_is_redirected(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest, shop: Shop
) -> None:
    created_session = await open_session(gateway, account, request_)
    session = await shop.inquire(created_session.reference)
    assert session["reference"] == ids.format_id(ids.SESSION, request_.session_id)
    expires_at = request_.expires_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert created_session.next_action == {
        "type": "redirect",
        "redirect": {
            "url": session["pay_url"],
            "method": "GET",
            "fields": {},
            "expires_at": expires_at,
        },
    }


async def test_a_repeated_request_with_the_same_id_returns_the_same_session(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest
) -> None:
    first = await open_session(gateway, account, request_)
    assert await open_session(gateway, account, request_) == first


async def test_a_repeated_request_with_another_amount_is_unknown(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest
) -> None:
    await open_session(gateway, account, request_)
    changed = replace(request_, amount_minor=1)
    assert isinstance(await gateway.create_session(account, changed), OutcomeUnknown)


async def test_a_session_that_the_gateway_refuses_is_rejected(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    simulator_url: str,
) -> None:
    unsupported = replace(request_, currency="EUR")
    outcome = await gateway.create_session(account, unsupported)
    assert outcome == SessionRejected(detail="status 422: unsupported currency: EUR")
    unknown_account = account_at(simulator_url, key="nobody")
    outcome = await gateway.create_session(unknown_account, request_)
    assert outcome == SessionRejected(detail="status 401: unknown API key")


async def test_a_session_with_a_long_description_is_created(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest
) -> None:
    await open_session(gateway, account, replace(request_, description="ก" * 2_000))


@pytest.mark.parametrize("action", ["503x1", "bad_json"])
async def test_a_creation_that_fails_or_gets_an_invalid_response_can_be_repeated(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    action: str,
) -> None:
    await shop.set_rules({"match": {"amount": "1590"}, "action": action})
    assert isinstance(await gateway.create_session(account, request_), OutcomeUnknown)
    await shop.set_rules()
    await open_session(gateway, account, request_)


async def test_a_creation_that_timed_out_is_found_by_our_session_id(
    request_: GatewaySessionRequest,
) -> None:
    impatient_client = GatewayHttpClient(timeout_s=0.15, response_bytes_max=1_000)
    patient_client = GatewayHttpClient(timeout_s=5, response_bytes_max=1_000)
    with running_simulator(scale=100) as url:  # the response takes 0.35 s
        account = account_at(url)
        body = json.dumps([{"match": {}, "action": "hang35s"}]).encode()
        await patient_client.request("PUT", f"{url}/_sim/rules", headers={}, body=body)
        outcome = await SimulatorGateway(impatient_client).create_session(account, request_)
        report = await SimulatorGateway(patient_client).inquire(account, ref(request_))
        await impatient_client.close()
        await patient_client.close()
    assert outcome == OutcomeUnknown(detail="no response within 0.15 s")
    assert report == SessionReport(state=GatewaySessionState.OPEN)


async def test_a_session_that_is_paid_before_the_response_is_created(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> None:
    await shop.set_rules({"match": {}, "action": "callback_before_response"})
    created_session = await open_session(gateway, account, request_)
    callback = gateway.parse_callback(account, as_callback(merchant.received[0]))
    assert callback.report == await gateway.inquire(account, ref(request_, created_session))


async def test_every_request_to_an_unreachable_gateway_is_unknown(
    gateway: SimulatorGateway, request_: GatewaySessionRequest
) -> None:
    account = account_at("http://127.0.0.1:9")
    assert isinstance(await gateway.create_session(account, request_), OutcomeUnknown)
    assert isinstance(await gateway.inquire(account, ref(request_)), OutcomeUnknown)
    assert isinstance(await gateway.close_session(account, ref(request_)), OutcomeUnknown)


async def test_a_server_error_during_an_inquiry_or_close_is_unknown(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest, shop: Shop
) -> None:
    created_session = await open_session(gateway, account, request_)
    await shop.set_rules(
        {"match": {}, "action": "503_inquiry"}, {"match": {}, "action": "503_cancel"}
    )
    assert isinstance(
        await gateway.inquire(account, ref(request_, created_session)), OutcomeUnknown
    )
    assert isinstance(
        await gateway.close_session(account, ref(request_, created_session)), OutcomeUnknown
    )


async def test_open_authorising_and_paid_sessions_are_reported(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest, shop: Shop
) -> None:
    created_session = await open_session(gateway, account, request_)
    session = ref(request_, created_session)
    assert await gateway.inquire(account, session) == SessionReport(state=GatewaySessionState.OPEN)
    await pay(shop, created_session, CHALLENGE)
    authorising = SessionReport(state=GatewaySessionState.AUTHORISING)
    assert await gateway.inquire(account, session) == authorising
    assert await gateway.close_session(account, session) == authorising
    challenge = f"{created_session.next_action['redirect']['url']}/challenge"
    await shop.call("POST", challenge, key="", data={"result": "approve"})
    reference = (await shop.inquire(created_session.reference))["capture"]["id"]
    paid = SessionReport(
        state=GatewaySessionState.CAPTURED,
        capture=Capture(reference=reference, amount_minor=159_000, currency="THB"),
    )
    assert await gateway.inquire(account, session) == paid
    assert await gateway.close_session(account, session) == paid


async def test_closing_an_open_session_is_permanent(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest
) -> None:
    created_session = await open_session(gateway, account, request_)
    closed = SessionReport(state=GatewaySessionState.CLOSED)
    assert await gateway.close_session(account, ref(request_)) == closed
    assert await gateway.close_session(account, ref(request_, created_session)) == closed
    assert await gateway.inquire(account, ref(request_)) == closed


async def test_an_expired_session_is_reported_as_closed(
    gateway: SimulatorGateway, account: GatewayAccount, request_: GatewaySessionRequest, shop: Shop
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    created_session = await open_session(gateway, account, replace(request_, expires_at=soon))
    await shop.until(created_session.reference, "expired")
    assert await gateway.inquire(account, ref(request_)) == SessionReport(
        state=GatewaySessionState.CLOSED
    )


@pytest.mark.parametrize(
    ("card", "reason"),
    [(DECLINED, FailureReason.DECLINED), (PROCESSING_ERROR, FailureReason.UNKNOWN)],
)
async def test_a_decline_is_reported_with_its_reason(
    account: GatewayAccount,
    shop: Shop,
    merchant: Merchant,
    card: str,
    reason: FailureReason,
    http: GatewayHttpClient,
) -> None:
    gateway, session = SimulatorGateway(http), await shop.create(reference=fresh_reference())
    await shop.pay(session, card)
    declined = SessionReport(state=GatewaySessionState.DECLINED, reason=reason)
    session_id = ids.parse_id(ids.SESSION, session["reference"])
    assert session_id is not None
    reference = session_ref(session_id, session["id"])
    assert await gateway.inquire(account, reference) == declined
    [received] = await merchant.wait_for(1)
    assert gateway.parse_callback(account, as_callback(received)).report == declined


async def test_unknown_sessions_and_sessions_of_other_accounts_are_absent(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    simulator_url: str,
) -> None:
    absent = SessionReport(state=GatewaySessionState.ABSENT)
    assert await gateway.inquire(account, ref(request_)) == absent
    assert await gateway.close_session(account, ref(request_)) == absent
    await open_session(gateway, account, request_)
    other_account = account_at(simulator_url, OTHER_KEY, OTHER_SECRET)
    assert await gateway.inquire(other_account, ref(request_)) == absent
    unknown_account = account_at(simulator_url, key="nobody")
    assert isinstance(await gateway.inquire(unknown_account, ref(request_)), OutcomeUnknown)
    assert isinstance(await gateway.close_session(unknown_account, ref(request_)), OutcomeUnknown)


def session_json(session_id: UUID, **changes: object) -> bytes:
    session: dict[str, object] = {
        "id": "ps_1",
        "reference": ids.format_id(ids.SESSION, session_id),
        "status": "open",
        "pay_url": "https://sim.example/pay/ps_1",
        "amount_minor": 159_000,
        "currency": "THB",
    }
    return json.dumps(session | changes).encode()


CAPTURED: dict[str, object] = {"id": "cap_1", "amount_minor": 159_000, "currency": "THB"}


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        ("200 OK", {"status": "settled"}),
        ("200 OK", {"amount_minor": "159000"}),
        ("200 OK", {"amount_minor": 159000.0}),
        ("200 OK", {"pay_url": "javascript:alert(1)"}),
        ("200 OK", {"id": ""}),
        ("200 OK", {"reference": "sess_0000000000000000000001"}),
        ("200 OK", {"status": "paid"}),
        ("200 OK", {"capture": CAPTURED}),
        ("200 OK", {"status": "paid", "capture": CAPTURED | {"amount_minor": -1}}),
        ("202 Accepted", {}),
        ("302 Found", {}),
        ("404 Not Found", {}),
        ("500 Oops", {}),
    ],
)
async def test_an_invalid_or_contradictory_response_is_unknown(
    gateway: SimulatorGateway, status: str, changes: dict[str, object]
) -> None:
    session = session_ref(uuid4())
    response = reply(status, session_json(session.session_id, **changes), "Connection: close")
    async with serve_responses(response) as url:
        for request in (gateway.inquire, gateway.close_session):
            outcome = await request(account_at(url), session)
            assert isinstance(outcome, OutcomeUnknown)
            # A readable response shows that the gateway is up, even if it contradicts itself.
            assert outcome.has_responded == (changes in ({"status": "paid"}, {"capture": CAPTURED}))


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 302, 202])
async def test_a_creation_with_an_inconclusive_response_status_is_unknown(
    gateway: SimulatorGateway, request_: GatewaySessionRequest, status: int
) -> None:
    async with serve_responses(reply(f"{status} Said", b'{"error":"busy"}')) as url:
        outcome = await gateway.create_session(account_at(url), request_)
    assert outcome == OutcomeUnknown(detail=f"status {status}: busy", is_throttled=status == 429)


@pytest.mark.parametrize(
    "changes", [{"reference": "sess_0000000000000000000001"}, {"amount_minor": 1}, {"id": None}]
)
async def test_a_created_session_that_does_not_match_the_request_is_unknown(
    gateway: SimulatorGateway, request_: GatewaySessionRequest, changes: dict[str, object]
) -> None:
    async with serve_responses(
        reply("201 Created", session_json(request_.session_id, **changes))
    ) as url:
        assert isinstance(await gateway.create_session(account_at(url), request_), OutcomeUnknown)


async def test_a_404_from_a_proxy_is_unknown(
    gateway: SimulatorGateway, request_: GatewaySessionRequest
) -> None:
    async with serve_responses(reply("404 Not Found", b"<h1>nginx</h1>")) as url:
        assert isinstance(await gateway.inquire(account_at(url), ref(request_)), OutcomeUnknown)


async def test_a_reference_is_escaped_in_the_url_path(gateway: SimulatorGateway) -> None:
    requests: list[bytes] = []
    session = session_ref(uuid4(), "../x?y#z")
    async with serve_responses(reply("404 Not Found", b"{}"), requests) as url:
        await gateway.inquire(account_at(f"{url}/"), session)
    assert requests[0].startswith(b"GET /v1/sessions/..%2Fx%3Fy%23z HTTP/1.1\r\n")


async def test_a_callback_about_a_paid_session_is_verified_and_parsed(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> None:
    await pay(shop, await open_session(gateway, account, request_), APPROVED)
    [received] = await merchant.wait_for(1)
    callback = gateway.parse_callback(account, as_callback(received))
    assert callback.id == received.headers["sim-id"]
    assert callback.session_id == request_.session_id
    assert callback.report == await gateway.inquire(account, ref(request_))
    assert callback.report is not None
    assert callback.report.state is GatewaySessionState.CAPTURED
    assert gateway.acknowledge(callback).content_type == "application/json"


async def test_a_callback_about_a_cancelled_session_is_parsed(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> None:
    created_session = await open_session(gateway, account, request_)
    await shop.call("POST", f"{created_session.next_action['redirect']['url']}/cancel", key="")
    [received] = await merchant.wait_for(1)
    callback = gateway.parse_callback(account, as_callback(received))
    assert callback.report == SessionReport(state=GatewaySessionState.CANCELLED)


async def test_repeated_callbacks_with_different_bytes_are_equal(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> None:
    await pay(shop, await open_session(gateway, account, request_), "4000009900000020")
    received = await merchant.wait_for(3)
    callbacks = [gateway.parse_callback(account, as_callback(item)) for item in received]
    assert callbacks[0] == callbacks[1] == callbacks[2]


async def test_a_callback_with_an_invalid_signature_is_refused_and_its_retry_accepted(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> None:
    merchant.answers.append(401)
    await pay(shop, await open_session(gateway, account, request_), "4000009900000095")
    first, second = await merchant.wait_for(2)
    with pytest.raises(InvalidCallbackError, match="signature"):
        gateway.parse_callback(account, as_callback(first))
    callback = gateway.parse_callback(account, as_callback(second))
    assert callback.session_id == request_.session_id


@pytest.fixture
async def received(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    request_: GatewaySessionRequest,
    shop: Shop,
    merchant: Merchant,
) -> Received:
    await pay(shop, await open_session(gateway, account, request_), APPROVED)
    return (await merchant.wait_for(1))[0]


async def test_a_callback_of_another_account_is_refused(
    gateway: SimulatorGateway, simulator_url: str, received: Received
) -> None:
    other_account = account_at(simulator_url, OTHER_KEY, OTHER_SECRET)
    with pytest.raises(InvalidCallbackError, match="signature"):
        gateway.parse_callback(other_account, as_callback(received))


async def test_an_account_without_a_signing_secret_refuses_callbacks(
    gateway: SimulatorGateway,
) -> None:
    for account in (account_at("", secret=""), replace(account_at(""), credentials={})):
        with pytest.raises(InvalidCallbackError, match="no signing secret"):
            gateway.parse_callback(account, sign_callback(b"{}", secret=""))


async def test_a_callback_with_a_changed_byte_is_refused(
    gateway: SimulatorGateway, account: GatewayAccount, received: Received
) -> None:
    for position in range(0, len(received.body), 7):
        body = bytearray(received.body)
        body[position] ^= 1
        with pytest.raises(InvalidCallbackError):
            gateway.parse_callback(account, as_callback(received, body=bytes(body)))


@pytest.mark.parametrize("name", ["sim-id", "sim-timestamp", "sim-signature"])
@pytest.mark.parametrize("value", [None, "", "é", "v1=", "١٢٣", "1" * 200, "\ud800", "2", "-1"])
async def test_a_callback_with_a_bad_header_is_refused(
    gateway: SimulatorGateway,
    account: GatewayAccount,
    received: Received,
    name: str,
    value: str | None,
) -> None:
    headers = {key: text for key, text in received.headers.items() if key != name}
    if value is not None:
        headers[name] = value
    with pytest.raises(InvalidCallbackError):
        gateway.parse_callback(account, as_callback(received, headers=headers))


@pytest.mark.parametrize(("shift_s", "accepted"), [(300, True), (-300, True), (301, False)])
async def test_a_callback_with_an_old_timestamp_is_refused(
    http: GatewayHttpClient,
    account: GatewayAccount,
    received: Received,
    shift_s: int,
    accepted: bool,
) -> None:
    sent_at = int(received.headers["sim-timestamp"])
    gateway = SimulatorGateway(http, now=lambda: sent_at + shift_s)
    if accepted:
        gateway.parse_callback(account, as_callback(received))
        return
    with pytest.raises(InvalidCallbackError, match="timestamp"):
        gateway.parse_callback(account, as_callback(received))


def sign_callback(body: bytes, secret: str = SECRET) -> CallbackRequest:
    event_id, timestamp = f"evt_{secrets.token_hex(4)}", str(int(time.time()))
    content = f"{event_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    headers = {"sim-id": event_id, "sim-timestamp": timestamp, "sim-signature": f"v1={digest}"}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"type":"session.paid"}',
        b'{"type":"session.paid","session":{}}',
        b'{"type":"session.paid","session":' + session_json(uuid4(), status="paid") + b"}",
    ],
)
def test_a_callback_with_a_valid_signature_and_an_invalid_body_is_refused(
    gateway: SimulatorGateway, body: bytes
) -> None:
    with pytest.raises(InvalidCallbackError, match="signed body"):
        gateway.parse_callback(account_at(""), sign_callback(body))


def test_a_callback_about_a_foreign_session_has_no_session_id(gateway: SimulatorGateway) -> None:
    session = session_json(uuid4(), reference="order-7", status="paid", capture=CAPTURED)
    body = b'{"type":"session.paid","session":' + session + b"}"
    callback = gateway.parse_callback(account_at(""), sign_callback(body))
    assert callback.session_id is None
    assert callback.report is not None
    assert callback.report.capture is not None


def test_a_ping_contains_no_report(gateway: SimulatorGateway) -> None:
    callback = gateway.parse_callback(account_at(""), sign_callback(b'{"type":"ping"}'))
    assert (callback.session_id, callback.report) == (None, None)


def refund_request(amount_minor: int = 159_000, capture: str = "cap_1") -> GatewayRefundRequest:
    return GatewayRefundRequest(
        refund_id=uuid4(),
        reference=None,
        session=None,
        capture=Capture(reference=capture, amount_minor=159_000, currency="THB"),
        amount_minor=amount_minor,
        reason="",
        destination=None,
        callback_url="http://127.0.0.1:9/callback",
    )


def refund_json(request: GatewayRefundRequest, **changes: object) -> bytes:
    refund: dict[str, object] = {
        "id": "re_1",
        "reference": ids.format_id(ids.REFUND, request.refund_id),
        "status": "succeeded",
    }
    return json.dumps(refund | changes).encode()


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        ("201 Created", {"status": "settled"}),
        ("201 Created", {"id": ""}),
        ("201 Created", {"reference": "ref_0000000000000000000001"}),
        ("202 Accepted", {}),
        ("302 Found", {}),
        ("404 Not Found", {}),
        ("422 Unprocessable", {}),
        ("500 Oops", {}),
    ],
)
async def test_an_invalid_response_to_a_refund_is_unknown(
    gateway: SimulatorGateway, status: str, changes: dict[str, object]
) -> None:
    request = refund_request()
    async with serve_responses(reply(status, refund_json(request, **changes))) as url:
        assert isinstance(await gateway.refund(account_at(url), request), OutcomeUnknown)
        assert isinstance(await gateway.inquire_refund(account_at(url), request), OutcomeUnknown)


@pytest.mark.parametrize("status", [400, 401, 409, 429, 500, 503])
async def test_a_refused_refund_that_may_have_been_processed_before_is_unknown(
    gateway: SimulatorGateway, status: int
) -> None:
    async with serve_responses(reply(f"{status} Said", b'{"error":"busy"}')) as url:
        outcome = await gateway.refund(account_at(url), refund_request())
    assert outcome == OutcomeUnknown(detail=f"status {status}: busy", is_throttled=status == 429)


async def test_a_refund_of_an_unknown_capture_is_declined(
    gateway: SimulatorGateway, account: GatewayAccount
) -> None:
    outcome = await gateway.refund(account, refund_request(capture="cap_nobody"))
    declined = GatewayRefundState.DECLINED
    assert outcome == RefundReport(state=declined, detail="status 404: no such capture")


async def test_a_refund_with_an_invalid_api_key_is_unknown(
    gateway: SimulatorGateway, simulator_url: str
) -> None:
    unknown_account, request = account_at(simulator_url, key="nobody"), refund_request()
    assert isinstance(await gateway.refund(unknown_account, request), OutcomeUnknown)
    assert isinstance(await gateway.inquire_refund(unknown_account, request), OutcomeUnknown)


async def test_a_refund_that_timed_out_is_found_by_our_refund_id(
    request_: GatewaySessionRequest, merchant: Merchant
) -> None:
    impatient_client = GatewayHttpClient(timeout_s=0.15, response_bytes_max=1_000)
    patient_client = GatewayHttpClient(timeout_s=10, response_bytes_max=1_000)
    with running_simulator(scale=10) as url:  # the response takes 3.5 s
        account, gateway = account_at(url), SimulatorGateway(patient_client)
        created_session = await open_session(gateway, account, request_)
        page = created_session.next_action["redirect"]["url"]
        await patient_client.request("POST", page, headers=FORM, body=f"card={APPROVED}".encode())
        session_report = await gateway.inquire(account, ref(request_))
        assert isinstance(session_report, SessionReport)
        assert session_report.capture is not None
        body = b'[{"match":{},"action":"hang_refund"}]'
        await patient_client.request("PUT", f"{url}/_sim/rules", headers={}, body=body)
        request = refund_request(capture=session_report.capture.reference)
        outcome = await SimulatorGateway(impatient_client).refund(account, request)
        report = await gateway.inquire_refund(account, request)
        await impatient_client.close()
        await patient_client.close()
    assert isinstance(outcome, OutcomeUnknown)
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.DONE


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"refund.succeeded","refund":{}}',
        b'{"type":"refund.succeeded","refund":{"id":"re_1","reference":"r","status":"odd"}}',
        b'{"type":"refund.succeeded","refund":{"id":"\\u0000","reference":"r","status":"refused"}}',
    ],
)
def test_a_signed_refund_callback_with_invalid_content_is_refused(
    gateway: SimulatorGateway, body: bytes
) -> None:
    with pytest.raises(InvalidCallbackError, match="signed body"):
        gateway.parse_callback(account_at(""), sign_callback(body))


def test_a_callback_about_a_foreign_refund_has_no_refund_id(gateway: SimulatorGateway) -> None:
    body = b'{"type":"refund.refused","refund":{"id":"re_1","reference":"r","status":"refused"}}'
    callback = gateway.parse_callback(account_at(""), sign_callback(body))
    assert callback.refund_id is None
    assert callback.refund == RefundReport(state=GatewayRefundState.DECLINED, reference="re_1")
