"""Restore an older state into a new cluster, as `docs/operate/runbook.md` describes.

The restored database lacks later events, which a gateway, a chain and a merchant still know. The
data that is recovered automatically and the operator's first steps match the page.
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
from tests.refunds.refunding import asked, kept, paid, work
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway, captured
from tests.support.memory_folder import memory_folder
from tests.support.onchain import ChainWorld, chain_world
from tests.support.patience import wait_until
from tests.support.serving import serving_api
from tests.support.world import Api, World

pytestmark = [pytest.mark.e2e, pytest.mark.full]

_TOTAL = 159_000  # 1590.00 THB
_DAY_S = 86_400
_INQUIRED_WITHIN_S = 3_700.0  # a session that is open is asked about every hour


class RememberingGateway(FakeGateway):
    """A gateway that remembers its captures and refunds."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[UUID, SessionReport] = {}
        self.given_back: list[UUID] = []

    def take(self, session_id: UUID) -> SessionReport:
        """Capture a buyer's money."""
        self.taken[session_id] = captured(_TOTAL, reference=f"cap-{session_id}")
        return self.taken[session_id]

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionReport:
        return self.taken.get(
            session.session_id, SessionReport(state=GatewaySessionState.AUTHORISING)
        )

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundReport:
        self.given_back.append(request.refund_id)
        return RefundReport(state=GatewayRefundState.DONE)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport:
        done = request.refund_id in self.given_back
        return RefundReport(state=GatewayRefundState.DONE if done else GatewayRefundState.ABSENT)


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
    """A server without our data, as on a new host."""
    folder = Path(tempfile.mkdtemp(prefix="payintent-restore-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the server's own user can reach its data
    server = Postgres(folder / "data", durable=False)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Moment:
    """The contents of the dumped database, and the events right afterwards."""

    ground: ChainWorld
    gateway: RememberingGateway
    at_gateway: Payment  # its buyer is at the gateway
    waiting: Payment  # its buyer has not chosen yet
    on_chain: Payment  # its buyer has not sent anything yet
    undecided: Payment
    refunded: Payment
    refund: Refund  # not sent yet

    async def go_on(self) -> None:
        """Create all events that the restored database lacks."""
        world, ground = self.ground.world, self.ground
        session_id = (await world.read(self.at_gateway)).payment.session_id
        assert session_id is not None
        await world.report(self.at_gateway, session_id, self.gateway.take(session_id))
        self.lost_session = (await world.select(self.waiting)).session.id
        lost = self.gateway.take(self.lost_session)
        await world.report(self.waiting, self.lost_session, lost)
        assert await work(world) == 1
        assert self.gateway.given_back == [self.refund.id]
        await self._pay_on_chain()
        await ground.final()
        for payment in (self.at_gateway, self.waiting, self.on_chain, self.undecided):
            assert await world.status(payment) == "PAID"
        await world.perform(RevokeApiKey(public_id=await self.key_id(world)))

    async def _pay_on_chain(self) -> None:
        world, ground = self.ground.world, self.ground
        known = (await world.read(self.on_chain)).session
        assert known is not None
        await ground.pay(known)
        chosen = await world.select(self.undecided, ground.methods["USDT"])
        await ground.pay(chosen.session)

    async def key_id(self, world: World) -> str:
        [key] = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
        return key.public_id


@pytest.fixture
async def moment(ground: ChainWorld, gateway: RememberingGateway) -> Moment:
    world = ground.world
    at_gateway = await world.create(expires_in_s=_DAY_S)
    await world.select(at_gateway)
    refunded = await paid(world)
    on_chain, _ = await ground.bill("USDT", expires_in_s=_DAY_S)
    return Moment(
        ground=ground,
        gateway=gateway,
        at_gateway=at_gateway,
        waiting=await world.create(expires_in_s=_DAY_S),
        on_chain=on_chain,
        undecided=await world.create(currency="USD", expires_in_s=_DAY_S),
        refunded=refunded,
        refund=await asked(world, refunded),
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


async def test_after_a_restore_all_money_is_a_payment_or_a_case_and_no_refund_is_sent_twice(
    moment: Moment, new_cluster: Postgres, settings: Settings, chain_url: str, tmp_path: Path
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    await moment.go_on()
    server = new_cluster.url()
    drill.run("restore", tmp_path, server, RESTORED="restored")
    restored = settings.model_copy(
        update={
            "database_url": urlunsplit(urlsplit(server)._replace(path="/restored")),
            "rpc_native": SecretStr(chain_url),
            "chain_any_endpoints": True,
            "chain_poll_s": 0.1,
        }
    )
    async with contract_service(restored, moment.gateway) as service:
        back = replace(moment.ground.world, service=service)
        await _as_it_was(back, moment)
        await back.perform(RevokeApiKey(public_id=await moment.key_id(back)))
        assert (await back.perform(CheckQueuedRefunds())).refunds == 1
        await back.move_clock(_INQUIRED_WITHIN_S)
        async with serving_api(service.settings, back) as api, working(service):
            await _comes_back_by_itself(back, moment)
            await _is_told_of_a_session_it_lost(api, moment)
            await _goes_back_from_its_case(back, moment)
            await _all_money_is_known(back, moment)


async def _as_it_was(back: World, moment: Moment) -> None:
    """Check that the restored database lacks the later events."""
    assert await back.status(moment.at_gateway) == "PROCESSING"
    assert await back.status(moment.on_chain) == "PROCESSING"
    assert await back.status(moment.waiting) == "PENDING"
    assert await back.status(moment.undecided) == "PENDING"
    assert (await kept(back, moment.refund)).step == "queued"
    [key] = await back.perform(ListApiKeys(merchant_id=back.merchant_id))
    assert key.revoked_at is None


async def _comes_back_by_itself(back: World, moment: Moment) -> None:
    async def paid_again() -> bool:
        both = (moment.at_gateway, moment.on_chain)
        return [await back.status(payment) for payment in both] == ["PAID", "PAID"]

    async def refund_ended() -> bool:
        return (await kept(back, moment.refund)).status == "SUCCEEDED"

    await wait_until(paid_again, "sessions that are known are paid again")
    await wait_until(refund_ended, "the refund is known to be done")
    assert moment.gateway.given_back == [moment.refund.id], "the buyer has it twice"
    assert await back.status(moment.refunded) == "REFUNDED"


async def _is_told_of_a_session_it_lost(api: Api, moment: Moment) -> None:
    """The gateway sends its callbacks again, and the chain's logs are read again."""
    world, session_id = api.world, moment.lost_session
    money = msgspec.to_builtins(moment.gateway.taken[session_id])
    answer = await api.send(
        "POST",
        f"/v1/callbacks/fake/{world.account_id}",
        json={"id": "late", "session_id": str(session_id), "report": money},
        headers={"Fake-Signature": world.signing_secret},
    )
    assert answer.status == 200

    async def two_cases() -> bool:
        rows = await world.rows("SELECT kind FROM money_case WHERE status = 'OPEN'")
        return [row["kind"] for row in rows] == ["UNKNOWN_REFERENCE", "UNKNOWN_REFERENCE"]

    await wait_until(two_cases, "money of lost sessions is a case each")
    assert await world.status(moment.waiting) == "PENDING"
    assert await world.status(moment.undecided) == "PENDING"


async def _goes_back_from_its_case(back: World, moment: Moment) -> None:
    [row] = await back.rows(
        """
        SELECT m.id
        FROM money_case m
        JOIN capture c ON c.id = m.capture_id
        WHERE c.account_id = $1
        """,
        back.account_id,
    )
    case_id = ids.format_id(ids.CASE, row["id"])
    await back.perform(ResolveCase(case_id=case_id, resolution="refund", note="paid again since"))

    async def given_back() -> bool:
        rows = await back.rows("SELECT status FROM money_case WHERE id = $1", row["id"])
        return rows[0]["status"] == "REFUNDED"

    await wait_until(given_back, "the money of a lost session goes back from its case")
    assert len(moment.gateway.given_back) == 2


async def _all_money_is_known(back: World, moment: Moment) -> None:
    """Compare the money at the gateway and on the chain with the restored database."""
    rows = await back.rows("SELECT reference FROM capture WHERE account_id = $1", back.account_id)
    there = {f"cap-{session_id}" for session_id in moment.gateway.taken}
    assert {row["reference"] for row in rows} == there | {f"cap-{moment.refunded.id}"}
    logs = await back.rows(
        """
        SELECT r.disposition
        FROM chain_receipt r
        JOIN capture c ON c.receipt_id = r.id
        ORDER BY r.disposition
        """
    )
    assert [row["disposition"] for row in logs] == ["credited", "unknown_uuid"]
