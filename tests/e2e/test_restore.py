"""Restore an older state into a new cluster, as `docs/operate/runbook.md` describes.

The restored database lacks later events, but the gateway and the chain still have them.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import msgspec
import pytest
from pydantic import SecretStr

from payintent.core import ids
from payintent.gateways.port import (
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionState,
    RefundReport,
    SessionReport,
)
from payintent.merchants.access_operations import ListApiKeys, RevokeApiKey
from payintent.payments.model import Payment
from payintent.refunds.model import Refund
from payintent.refunds.operations import CheckQueuedRefunds
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent.worker import run_loops
from payintent_sandbox.postgres import Postgres
from tests.e2e import drill
from tests.refunds.refund_setup import (
    create_paid_payment,
    process_due_refunds,
    read_refund,
    request_refund,
)
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway, captured
from tests.support.memory_folder import memory_folder
from tests.support.onchain import ChainWorld, chain_world
from tests.support.running_service import serving_api
from tests.support.timeouts import wait_until
from tests.support.world import Api, World

pytestmark = [pytest.mark.e2e, pytest.mark.full]

_TOTAL = 159_000  # 1590.00 THB
_DAY_S = 86_400
_INQUIRED_WITHIN_S = 3_700.0  # the service inquires about open sessions every hour


class RememberingGateway(FakeGateway):
    """A gateway that remembers its captures and refunds."""

    def __init__(self) -> None:
        super().__init__()
        self.captures: dict[UUID, SessionReport] = {}
        self.refunds: list[UUID] = []

    def capture(self, session_id: UUID) -> SessionReport:
        """Capture a buyer's money."""
        self.captures[session_id] = captured(_TOTAL, reference=f"cap-{session_id}")
        return self.captures[session_id]

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionReport:
        return self.captures.get(
            session.session_id, SessionReport(state=GatewaySessionState.AUTHORISING)
        )

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundReport:
        self.refunds.append(request.refund_id)
        return RefundReport(state=GatewayRefundState.DONE)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport:
        is_done = request.refund_id in self.refunds
        return RefundReport(state=GatewayRefundState.DONE if is_done else GatewayRefundState.ABSENT)


@pytest.fixture
def gateway() -> RememberingGateway:
    return RememberingGateway()


@pytest.fixture
async def service(settings: Settings, gateway: RememberingGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def ground(world: World, chain_url: str) -> AsyncIterator[ChainWorld]:
    async with chain_world(world, chain_url) as ground:
        await ground.allow()
        yield ground


@pytest.fixture
def new_cluster() -> Iterator[Postgres]:
    """An empty database server, as on a new host."""
    folder = Path(tempfile.mkdtemp(prefix="payintent-restore-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the server's system user can reach its data
    server = Postgres(folder / "data", durable=False)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Moment:
    """The payments in the dump, and the events that follow it."""

    ground: ChainWorld
    gateway: RememberingGateway
    at_gateway: Payment  # the buyer is on the gateway's page
    waiting: Payment  # the buyer has not selected a method
    on_chain: Payment  # the buyer has not sent a transfer
    undecided: Payment
    refunded: Payment
    refund: Refund  # not sent yet

    async def create_later_events(self) -> None:
        """Create the events that the restored database will lack."""
        world, ground = self.ground.world, self.ground
        session_id = (await world.read(self.at_gateway)).payment.session_id
        assert session_id is not None
        await world.report(self.at_gateway, session_id, self.gateway.capture(session_id))
        self.lost_session = (await world.select(self.waiting)).session.id
        lost_report = self.gateway.capture(self.lost_session)
        await world.report(self.waiting, self.lost_session, lost_report)
        assert await process_due_refunds(world) == 1
        assert self.gateway.refunds == [self.refund.id]
        await self._pay_on_chain()
        await ground.final()
        for payment in (self.at_gateway, self.waiting, self.on_chain, self.undecided):
            assert await world.status(payment) == "PAID"
        await world.perform(RevokeApiKey(public_id=await self.key_id(world)))

    async def _pay_on_chain(self) -> None:
        world, ground = self.ground.world, self.ground
        session = (await world.read(self.on_chain)).session
        assert session is not None
        await ground.pay(session)
        selection = await world.select(self.undecided, ground.methods["USDT"])
        await ground.pay(selection.session)

    async def key_id(self, world: World) -> str:
        [key] = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
        return key.public_id


@pytest.fixture
async def moment(ground: ChainWorld, gateway: RememberingGateway) -> Moment:
    world = ground.world
    at_gateway = await world.create(expires_in_s=_DAY_S)
    await world.select(at_gateway)
    refunded = await create_paid_payment(world)
    on_chain, _ = await ground.bill("USDT", expires_in_s=_DAY_S)
    return Moment(
        ground=ground,
        gateway=gateway,
        at_gateway=at_gateway,
        waiting=await world.create(expires_in_s=_DAY_S),
        on_chain=on_chain,
        undecided=await world.create(currency="USD", expires_in_s=_DAY_S),
        refunded=refunded,
        refund=await request_refund(world, refunded),
    )


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    """Run a worker while the block runs."""
    stop = asyncio.Event()
    loops = asyncio.create_task(run_loops(service, stop))
    try:
        yield
    finally:
        stop.set()
        await loops


async def test_after_a_restore_all_money_is_assigned_and_no_refund_is_sent_twice(
    moment: Moment, new_cluster: Postgres, settings: Settings, chain_url: str, tmp_path: Path
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    await moment.create_later_events()
    server = new_cluster.url()
    drill.run("restore", tmp_path, server, RESTORED="restored")
    restored_settings = settings.model_copy(
        update={
            "database_url": urlunsplit(urlsplit(server)._replace(path="/restored")),
            "rpc_native": SecretStr(chain_url),
            "chain_any_endpoints": True,
            "chain_poll_s": 0.1,
        }
    )
    async with contract_service(restored_settings, moment.gateway) as service:
        restored_world = replace(moment.ground.world, service=service)
        await _check_restored_state(restored_world, moment)
        await restored_world.perform(RevokeApiKey(public_id=await moment.key_id(restored_world)))
        assert (await restored_world.perform(CheckQueuedRefunds())).refunds == 1
        await restored_world.move_clock(_INQUIRED_WITHIN_S)
        async with serving_api(service.settings, restored_world) as api, working(service):
            await _check_automatic_recovery(restored_world, moment)
            await _check_lost_sessions(api, moment)
            await _check_refund_of_case(restored_world, moment)
            await _check_all_captures(restored_world, moment)


async def _check_restored_state(restored_world: World, moment: Moment) -> None:
    """Check that the restored database lacks the later events."""
    assert await restored_world.status(moment.at_gateway) == "PROCESSING"
    assert await restored_world.status(moment.on_chain) == "PROCESSING"
    assert await restored_world.status(moment.waiting) == "PENDING"
    assert await restored_world.status(moment.undecided) == "PENDING"
    assert (await read_refund(restored_world, moment.refund)).step == "queued"
    [key] = await restored_world.perform(ListApiKeys(merchant_id=restored_world.merchant_id))
    assert key.revoked_at is None


async def _check_automatic_recovery(restored_world: World, moment: Moment) -> None:
    async def are_paid() -> bool:
        both = (moment.at_gateway, moment.on_chain)
        return [await restored_world.status(payment) for payment in both] == ["PAID", "PAID"]

    async def is_refund_done() -> bool:
        return (await read_refund(restored_world, moment.refund)).status == "SUCCEEDED"

    await wait_until(are_paid, "payments with known sessions are paid")
    await wait_until(is_refund_done, "the refund succeeds")
    assert moment.gateway.refunds == [moment.refund.id], "the refund was sent twice"
    assert await restored_world.status(moment.refunded) == "REFUNDED"


async def _check_lost_sessions(api: Api, moment: Moment) -> None:
    """Check that money for lost sessions opens cases, after a callback and a chain scan."""
    world, session_id = api.world, moment.lost_session
    money = msgspec.to_builtins(moment.gateway.captures[session_id])
    answer = await api.send(
        "POST",
        f"/v1/callbacks/fake/{world.account_id}",
        json={"id": "late", "session_id": str(session_id), "report": money},
        headers={"Fake-Signature": world.signing_secret},
    )
    assert answer.status == 200

    async def has_two_cases() -> bool:
        rows = await world.rows("SELECT kind FROM money_case WHERE status = 'OPEN'")
        return [row["kind"] for row in rows] == ["UNKNOWN_REFERENCE", "UNKNOWN_REFERENCE"]

    await wait_until(has_two_cases, "each lost session has a case")
    assert await world.status(moment.waiting) == "PENDING"
    assert await world.status(moment.undecided) == "PENDING"


async def _check_refund_of_case(restored_world: World, moment: Moment) -> None:
    [row] = await restored_world.rows(
        """
        SELECT m.id
        FROM money_case m
        JOIN capture c ON c.id = m.capture_id
        WHERE c.account_id = $1
        """,
        restored_world.account_id,
    )
    case_id = ids.format_id(ids.CASE, row["id"])
    await restored_world.perform(
        ResolveCase(case_id=case_id, resolution="refund", note="paid again since")
    )

    async def is_refunded() -> bool:
        rows = await restored_world.rows("SELECT status FROM money_case WHERE id = $1", row["id"])
        return rows[0]["status"] == "REFUNDED"

    await wait_until(is_refunded, "the case is refunded")
    assert len(moment.gateway.refunds) == 2


async def _check_all_captures(restored_world: World, moment: Moment) -> None:
    """Compare the captures at the gateway and on the chain with the restored database."""
    rows = await restored_world.rows(
        "SELECT reference FROM capture WHERE account_id = $1", restored_world.account_id
    )
    there = {f"cap-{session_id}" for session_id in moment.gateway.captures}
    assert {row["reference"] for row in rows} == there | {f"cap-{moment.refunded.id}"}
    logs = await restored_world.rows(
        """
        SELECT r.disposition
        FROM chain_receipt r
        JOIN capture c ON c.receipt_id = r.id
        ORDER BY r.disposition
        """
    )
    assert [row["disposition"] for row in logs] == ["credited", "unknown_uuid"]
