"""The test gateway's adapter, with its own tables and an external receiver for callbacks."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

import aiohttp
import pytest

from payintent.core import ids
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    DisputeState,
    FailureReason,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    SessionCreated,
)
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.merchants.operations import CreateMerchant
from payintent.merchants.provisioning import TEST_PROVIDER
from payintent.service import Service, open_service
from payintent.test_mode import store as test_mode_store
from payintent.test_mode.buyer_simulator import (
    SessionAction,
    decide_dispute,
    enter_card,
    enter_declined_card,
)
from payintent.test_mode.gateway import write_callback
from payintent.test_mode.model import APPROVED_CARD, list_callbacks
from tests.conformance.harness import Harness, RefundOutcome
from tests.conformance.own_database import own_database
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS
from tests.support.fakes import FakeGateway
from tests.support.world import ACTOR

CARDS = {
    RefundOutcome.DONE: APPROVED_CARD,
    RefundOutcome.PENDING: "4000009900000160",
    RefundOutcome.DECLINED: "4000009900000178",
}
SIGNATURE = "test-signature"


@dataclass(kw_only=True)
class InnerGatewayHarness(Harness):
    service: Service
    http: aiohttp.ClientSession
    card: str = APPROVED_CARD

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._step(request.session_id, enter_card(self.card))

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._step(request.session_id, enter_declined_card("card_declined"))

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        self.card = CARDS[outcome]

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        await self.service.database.fetch(
            "UPDATE test_refund SET state = $2, done_at = clock() WHERE refund_id = $1",
            request.refund_id,
            outcome.value,
        )

    async def get_refunded_minor(self, capture: Capture) -> int:
        row = await self.service.database.row(
            """
            SELECT coalesce(sum(amount_minor), 0)::bigint AS given
            FROM test_refund
            WHERE session_id = $1 AND state = 'done'
            """,
            _get_session_id(capture),
        )
        assert row is not None
        return row["given"]

    async def dispute(self, capture: Capture) -> str:
        await self._step(_get_session_id(capture), decide_dispute(DisputeState.OPEN))
        return capture.reference

    async def win(self, dispute: str) -> None:
        await self._step(_parse_session_id(dispute), decide_dispute(DisputeState.WON))

    def payload(self, callback: CallbackRequest) -> bytes:
        return callback.body

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        secret = account.credentials["signing_secret"].encode()
        signature = hmac.new(secret, payload, hashlib.sha256).hexdigest()
        headers = {SIGNATURE: signature}
        return CallbackRequest(method="POST", headers=headers, query={}, body=payload)

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        if not currency:
            return None
        facts = json.loads(payload)
        facts["report"]["capture"]["currency"] = currency
        return json.dumps(facts).encode()

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        signature = callback.headers[SIGNATURE]
        forged = {
            "an empty signature": "",
            "another signature": "0" * len(signature),
            "in upper case": signature.upper(),
            "shorter": signature[:-1],
        }
        headers = {name: value for name, value in callback.headers.items() if name != SIGNATURE}
        return {"no signature": replace(callback, headers=headers)} | {
            name: replace(callback, headers={**headers, SIGNATURE: text})
            for name, text in forged.items()
        }

    async def _step(self, session_id: UUID, step: SessionAction) -> None:
        """Change the gateway's records as the service does, and send a callback to the receiver."""
        async with self.service.database.transaction() as tx:
            locked = await test_mode_store.lock_session(tx, session_id)
            assert locked is not None
            after = step(locked.session, locked.now)
            assert after is not None
            await test_mode_store.update_session(tx, after)
        for notice in list_callbacks(after):
            callback = write_callback(self.account, notice)
            url, headers = self.receiver.url, dict(callback.headers)
            async with self.http.post(url, data=callback.body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()


def _get_session_id(capture: Capture) -> UUID:
    return _parse_session_id(capture.reference)


def _parse_session_id(reference: str) -> UUID:
    return UUID(reference.removeprefix("test_"))


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    del fixtures
    async with (
        own_database() as settings,
        receiving() as receiver,
        aiohttp.ClientSession() as http,
    ):
        service = await open_service(settings, {"fake": FakeGateway()})
        gateway = service.accounts.gateway(TEST_PROVIDER)
        assert gateway is not None
        harness = InnerGatewayHarness(
            gateway=gateway,
            hurried=None,
            account=await _account(service),
            other_account=await _account(service),
            faults=None,
            receiver=receiver,
            currency="THB",
            amount_minor=159_000,
            failures={
                "card_declined": FailureReason.DECLINED,
                "insufficient_funds": FailureReason.DECLINED,
                "expired_card": FailureReason.DECLINED,
                "incorrect_cvc": FailureReason.DECLINED,
                "authentication_failed": FailureReason.DECLINED,
                "processing_error": FailureReason.UNKNOWN,
            },
            unknown_reference=ids.format_id(ids.SESSION, UUID(int=7)),
            **vars(TRAITS[TEST_PROVIDER]),
            service=service,
            http=http,
        )
        receiver.serve(gateway, harness.account)
        yield harness
        await service.close()


async def _account(service: Service) -> GatewayAccount:
    """Return the account of a new merchant's test merchant."""
    new = await service.run_operation(CreateMerchant(name="Nimbus Books"), ACTOR)
    issue = IssueApiKey(merchant_id=new.merchant.id, test=True)
    side = await service.run_operation(issue, ACTOR)
    operation = ListPaymentMethods(merchant_id=side.merchant_id)
    [method, *_] = await service.run_operation(operation, ACTOR)
    account = await service.accounts.get(method.account_id)
    assert account is not None
    return account
