"""The contract's adapter, with a development chain that is read after every event.

Its operations use our ledger and the chain's signer. `tests/onchain` therefore tests their failures
with separate signers and endpoints, and `faults` is None here.
"""

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from payintent.chains.operations import AddContract
from payintent.chains.store import PROVIDER
from payintent.evm.event_logs import REFUNDED
from payintent.evm.refund_sender import RefundSenders
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    InvalidCallbackError,
    SessionCreated,
)
from payintent.merchants.model import ExpectedToken, FeeMode, Price, Quote
from payintent.payment_sessions.settle import complete_selections
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.model import Session, SessionStatus
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.deploy import PLANS, deploy
from tests.conformance.harness import Harness, RefundOutcome
from tests.conformance.own_database import own_database
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS
from tests.support.chain import fetched_anvil
from tests.support.chain_refunds import RefundWorld, refunding
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import make_world

COIN = "NATIVED"


@dataclass(kw_only=True)
class ContractHarness(Harness):
    refunds: RefundWorld

    @property
    def ground(self) -> ChainWorld:
        return self.refunds.ground

    async def visit(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Store the session as the core does, because the contract's adapter reads our database."""
        if await self._is_stored(request):
            return
        service = self.ground.world.service
        payment = await self.ground.world.create(currency="USD")
        session = _session(request, created, payment.id, self.account.id, self.ground)
        async with service.database.transaction() as tx:
            locked = await payment_store.lock(tx, [payment.id])
            await session_store.add(tx, [session], 30.0, 20)
            selections = [(locked.payments[0], session)]
            await complete_selections(tx, selections, locked.now)

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        session = await self._session(request)
        await self.ground.pay_otherwise(session)
        await self.ground.final()

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        raise NotImplementedError("a contract does not decline payments")

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        """Do nothing, because every refund is pending until its block is final."""

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        assert outcome is RefundOutcome.DONE
        await self.ground.final()

    async def get_refunded_minor(self, capture: Capture) -> int:
        [row] = await self.ground.world.rows(
            """
            SELECT r.uuid FROM chain_receipt r JOIN capture c ON c.receipt_id = r.id
            WHERE c.reference = $1
            """,
            capture.reference,
        )
        search = {
            "fromBlock": "0x0",
            "address": self.ground.deployment.contract_address,
            "topics": [f"0x{REFUNDED.hex()}", f"0x{row['uuid'].hex()}{32 * '0'}"],
        }
        logs = await self.ground.chain.ask("eth_getLogs", search)
        return sum(int(log["data"][2:66], 16) for log in logs)

    def payload(self, callback: CallbackRequest) -> bytes:
        return callback.body

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        return CallbackRequest(method="POST", headers={}, query={}, body=payload)

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        raise InvalidCallbackError("a contract does not send callbacks")

    async def _is_stored(self, request: GatewaySessionRequest) -> bool:
        database = self.ground.world.database
        return await session_store.get(database, request.session_id) is not None

    async def _session(self, request: GatewaySessionRequest) -> Session:
        session = await session_store.get(self.ground.world.database, request.session_id)
        assert session is not None
        return session


def _session(
    request: GatewaySessionRequest,
    created: SessionCreated,
    payment_id: UUID,
    account_id: int,
    ground: ChainWorld,
) -> Session:
    total = f"{Decimal(request.amount_minor).scaleb(-18):f}"
    quote = Price(
        currency=COIN,
        amount=total,
        fee_mode=FeeMode.INCLUSIVE,
        fee_rate="0",
        fee_amount="0",
        estimated_tax="0",
        total_amount=total,
    )
    offer = Quote(
        payment_method_id=ground.methods[COIN],
        account_id=account_id,
        provider=PROVIDER,
        provider_name=PROVIDER,
        kind="onchain",
        label=COIN,
        country=request.country,
        chain=ground.slug,
        token=COIN,
        price=quote,
        total_minor=request.amount_minor,
        expected_token=ExpectedToken(bytes(20), 18, approve_zero_first=False),
    )
    return Session(
        id=request.session_id,
        payment_id=payment_id,
        status=SessionStatus.OPENING,
        outcome=None,
        quote=offer,
        reference=created.reference,
        next_action=None,
        return_url=None,
        inquiries=0,
        declines=0,
        opened_at=request.opened_at,
        closing_at=None,
    )


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    del fixtures
    async with AsyncExitStack() as stack:
        settings = await stack.enter_async_context(own_database())
        refund_senders = RefundSenders()
        service = await stack.enter_async_context(_service(settings, refund_senders))
        ground = await stack.enter_async_context(_ground(service, stack.enter_context(_chain())))
        refunds = await stack.enter_async_context(refunding(ground, refund_senders))
        receiver = await stack.enter_async_context(receiving())
        other_deployment = await deploy(ground.chain, PLANS[ground.slug])
        other_contract = await ground.world.perform(
            AddContract(
                chain=ground.slug,
                address=other_deployment.contract_address,
                receiver=other_deployment.receiver,
                deployed_block=other_deployment.deployed_block,
            )
        )
        account = await service.accounts.get(ground.account_id)
        assert account is not None
        gateway = service.accounts.gateway(PROVIDER)
        assert gateway is not None
        harness = ContractHarness(
            gateway=gateway,
            hurried=None,
            account=account,
            other_account=replace(account, id=other_contract.account_id),
            faults=None,
            receiver=receiver,
            currency=COIN,
            amount_minor=255 * 10**17,
            kind="onchain",
            failures={item.value: item for item in FailureReason},
            unknown_reference=f"0x{32 * '7'}",
            public=frozenset({"chain", "network_id"}),
            **vars(TRAITS[PROVIDER]),
            refunds=refunds,
        )
        yield harness


@contextmanager
def _chain() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="payintent-chain-") as folder:
        chain = Anvil(612_055, log=Path(folder) / "anvil.log", binary=fetched_anvil())
        try:
            yield chain.start()
        finally:
            chain.stop()


@asynccontextmanager
async def _service(settings: Settings, refund_senders: RefundSenders) -> AsyncIterator[Service]:
    async with contract_service(settings, FakeGateway(), refund_senders) as service:
        yield service


@asynccontextmanager
async def _ground(service: Service, url: str) -> AsyncIterator[ChainWorld]:
    world = await make_world(service, FakeGateway())
    async with chain_world(world, url) as ground:
        await ground.allow()
        yield ground
