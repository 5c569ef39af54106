"""The buyer opens a link, which can be emailed, to enter the address for a deposit's refund."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.approvals.operations import Approve, make_proposal_view
from payintent.checkout.languages import load_language
from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, UnprocessableError
from payintent.evm.abi import to_checksum_address
from payintent.gateways.port import GatewayRefundRequest, GatewayRefundState, RefundReport
from payintent.mail.smtp_client import SmtpClient
from payintent.merchants.operations import SetMerchantProfile
from payintent.onchain.deposit_gateway import DepositGateway
from payintent.operators.proposals_store import Proposal
from payintent.payments.model import Payment
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund
from payintent.refunds.destination import enter_buyer_address
from payintent.refunds.lookup import make_refund_fields
from payintent.refunds.model import RefundStatus
from payintent.refunds.operations import ListRefunds, RefundPayment, ShowAddressLink, ShowRefund
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent.worker import open_mail_sender
from tests.refunds.refund_setup import (
    claim_due_refunds,
    process_due_refunds,
    request_refund,
)
from tests.support.contracts import PAYER, bill, contract_service, offer_deposits, record_deposit
from tests.support.fakes import FakeGateway
from tests.support.operation_examples import (
    ADA,
    ALAN,
    add_refunds_for_approval,
    open_outside_sandbox,
)
from tests.support.smtp_server import SmtpServer, smtp_server
from tests.support.world import Api, World

pytestmark = pytest.mark.full

BUYER, OTHER = (to_checksum_address(bytes(19) + bytes([digit])) for digit in (7, 8))
TOTAL = 25_500_000_000_000_000_000


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    with smtp_server() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, server: SmtpServer) -> Settings:
    mail = {"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_security": "none"}
    return settings.model_copy(update=mail | {"smtp_from": "payments@pay.example.com"})


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@dataclass(frozen=True)
class Deposits:
    """A merchant that accepts payments to deposit addresses."""

    world: World
    method: int

    async def paid(self, **changes: Any) -> Payment:
        payment, session = await bill(self.world, self.method, **changes)
        await record_deposit(self.world, session.id, TOTAL)
        return payment

    async def refund(self, payment: Payment, **fields: Any) -> Any:
        payment_id = ids.format_id(ids.PAYMENT, payment.id)
        refund = RefundPayment(payment_id=payment_id, **fields)
        return await self.world.service.run_operation(refund, ADA)

    async def enter(self, refund: Any, address: str = BUYER) -> Any:
        refund_id = ids.parse_id(ids.REFUND, refund.id)
        assert isinstance(refund_id, UUID)
        async with self.world.database.transaction() as tx:
            await enter_buyer_address(tx, refund_id, address)
        return await self.world.perform(ShowRefund(refund_id=refund.id))


@pytest.fixture
async def deposits(world: World) -> Deposits:
    return Deposits(world, await offer_deposits(world))


async def test_only_the_approver_sees_the_link_and_it_is_not_stored(
    deposits: Deposits, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    world = deposits.world
    refund = await deposits.refund(await deposits.paid())
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    async with open_outside_sandbox(world) as service:
        proposal = await service.submit(ShowAddressLink(refund_id=refund.id), ADA)
        assert isinstance(proposal, Proposal)
        approve = Approve(approval_id=make_proposal_view(proposal).id)
        with pytest.raises(ConflictError, match="an operator other than 'Ada'"):
            await service.run_operation(approve, ADA)
        link = (await service.run_operation(approve, ALAN)).result["link"]
    path = re.fullmatch(r"https?://[^/]+(/c/refund/[\w-]{44})", link)
    assert path is not None, link
    page = await api.send("GET", path[1])
    assert (page.status, b"25.5" in page.body) == (200, True)
    code = path[1].rpartition("/")[2]
    rows = await world.rows("SELECT details::text FROM audit")
    assert rows
    rows += await world.rows("SELECT changes::text, proposal.sealed::text FROM proposal")
    assert not [row for row in rows if code in str(tuple(row.values()))]
    output = capsys.readouterr()
    assert code not in output.out + output.err


async def test_the_link_is_mailed_in_the_shops_language_until_the_address_is_entered(
    deposits: Deposits, server: SmtpServer
) -> None:
    world = deposits.world
    profile = {"mail_receipts": True, "name": "Nimbus Books", "locale": "ja"}
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, **profile))
    refunds = [
        await deposits.refund(await deposits.paid(payer_email=email))
        for email in ("buyer@example.com", "early@example.com", None)
    ]
    await deposits.enter(refunds[1])
    await world.rows("DELETE FROM mail WHERE kind = 'receipt'")
    queued_mails = await world.rows("SELECT kind, refund_id, payment_id, sealed FROM mail")
    refund_ids = {ids.parse_id(ids.REFUND, refund.id) for refund in refunds[:2]}
    assert {tuple(row.values()) for row in queued_mails} == {
        ("refund_address", refund_id, None, None) for refund_id in refund_ids
    }
    sender = open_mail_sender(world.service, SmtpClient(world.service.settings))
    await sender.step()
    [mail] = server.mails
    assert mail["To"] == "buyer@example.com"
    assert mail["Subject"] == f"{load_language('ja').t('refund_address')} · Nimbus Books"
    text = mail.get_content()
    first_id = ids.parse_id(ids.REFUND, refunds[0].id)
    assert first_id is not None
    assert f"/c/refund/{world.service.refund_address_links.create_code(first_id)}" in text
    assert "25.5" in text
    assert await world.rows("SELECT FROM mail") == []


async def test_no_link_is_mailed_unless_the_merchant_mails_receipts(deposits: Deposits) -> None:
    await deposits.refund(await deposits.paid(payer_email="buyer@example.com"))
    assert await deposits.world.rows("SELECT FROM mail") == []


async def test_a_refund_that_waits_for_an_address_can_be_rejected(deposits: Deposits) -> None:
    payment = await deposits.paid()
    refund = await deposits.refund(payment)
    assert (refund.step, refund.can_enter_address) == ("address", True)
    rejected_refund = await deposits.world.perform(
        RejectRefund(refund_id=refund.id, note="no answer")
    )
    assert (rejected_refund.status, rejected_refund.failure_reason) == ("FAILED", "REJECTED")
    assert not rejected_refund.can_enter_address
    second_refund = await deposits.refund(payment)
    assert second_refund.goes_back == refund.goes_back


async def test_only_a_deposit_refund_without_a_final_address_has_a_link(deposits: Deposits) -> None:
    refund = await deposits.refund(await deposits.paid())
    for address in (BUYER, OTHER):
        await deposits.enter(refund, address)
    with pytest.raises(ConflictError, match="can no longer be entered"):
        await deposits.world.perform(ShowAddressLink(refund_id=refund.id))
    _, refund_id, _ = await add_refunds_for_approval(deposits.world)
    card_refund = ids.format_id(ids.REFUND, refund_id)
    with pytest.raises(UnprocessableError, match="only the refund of a deposit"):
        await deposits.world.perform(ShowAddressLink(refund_id=card_refund))


async def test_only_the_buyer_can_choose_the_sender_as_destination_and_it_needs_approval(
    deposits: Deposits,
) -> None:
    payment = await deposits.paid()
    with pytest.raises(BadRequestError, match="may be an exchange"):
        await deposits.refund(payment, destination=PAYER)
    refund = await deposits.enter(await deposits.refund(payment), PAYER)
    assert (refund.step, refund.payer, refund.destination) == ("approval", PAYER, PAYER)


async def test_a_refund_counts_towards_the_daily_threshold_when_its_address_is_entered(
    deposits: Deposits,
) -> None:
    world = deposits.world
    await world.rows("UPDATE chain SET refund_approval_above = 30")
    refunds = [await deposits.refund(await deposits.paid()) for _ in range(2)]
    await world.move_clock(2 * 86_400)
    assert (await deposits.enter(refunds[0])).step == "queued"
    assert (await deposits.enter(refunds[0], OTHER)).step == "queued"  # not counted twice
    assert (await deposits.enter(refunds[1])).step == "approval"


async def test_a_corrected_address_needs_a_new_approval(deposits: Deposits) -> None:
    world = deposits.world
    await world.rows("UPDATE chain SET refund_approval_above = 1")
    refund = await deposits.enter(await deposits.refund(await deposits.paid()))
    approved_refund = await world.perform(
        ApproveRefund(refund_id=refund.id, note="the buyer's wallet")
    )
    assert (approved_refund.step, approved_refund.approved_by is None) == ("queued", False)
    corrected_refund = await deposits.enter(refund, OTHER)
    assert (corrected_refund.step, corrected_refund.approved_by) == ("approval", None)
    assert corrected_refund.destination == OTHER.lower()


async def test_a_refund_that_was_claimed_before_its_address_was_corrected_goes_to_the_new_address(
    deposits: Deposits, monkeypatch: pytest.MonkeyPatch
) -> None:
    destinations: list[str | None] = []

    async def refund(_: object, __: object, request: GatewayRefundRequest) -> RefundReport:
        destinations.append(request.destination)
        return RefundReport(state=GatewayRefundState.PENDING)

    monkeypatch.setattr(DepositGateway, "refund", refund)
    world = deposits.world
    await world.rows("UPDATE chain SET refund_approval_above = 100")
    refund_to_correct = await deposits.enter(await deposits.refund(await deposits.paid()))
    [claimed_refund] = await claim_due_refunds(world)
    corrected_refund = await deposits.enter(refund_to_correct, OTHER)
    assert corrected_refund.step == "queued"
    await world.service.refund_sender.process(claimed_refund)
    assert destinations == []
    await process_due_refunds(world)
    assert destinations == [OTHER.lower()]


async def test_a_repeated_request_returns_the_refund_without_the_address_entered_since(
    deposits: Deposits,
) -> None:
    payment, key = await deposits.paid(), uuid4()
    first_refund = await request_refund(deposits.world, payment, key=key)
    for address in (BUYER, OTHER):
        stored_refund = await deposits.world.perform(
            ShowRefund(refund_id=ids.format_id(ids.REFUND, first_refund.id))
        )
        await deposits.enter(stored_refund, address)
        repeated_refund = await request_refund(deposits.world, payment, key=key)
        assert make_refund_fields(repeated_refund) == make_refund_fields(first_refund)


@pytest.mark.parametrize("criteria", [{"status": RefundStatus.PENDING}, {"step": "address"}])
async def test_a_refund_that_waits_for_an_address_is_listed_as_pending(
    deposits: Deposits, criteria: dict[str, Any]
) -> None:
    refund = await deposits.refund(await deposits.paid())
    listed = await deposits.world.perform(ListRefunds(**criteria))
    assert [item.id for item in listed] == [refund.id]
