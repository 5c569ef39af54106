"""The refund of a deposit goes to an address that the buyer enters, not to the sender."""

import asyncio
import re
from dataclasses import dataclass

import asyncpg
import pytest

from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError
from payintent.evm.abi import to_checksum_address
from payintent.merchants.operations import SetMerchantProfile
from payintent.payment_sessions.expire import expire_stranded
from payintent.payments.model import Payment
from payintent.reconciliation.operations import ListReconciliationRuns
from payintent.refunds.create import refund_case
from payintent.refunds.destination import enter_buyer_address
from payintent.refunds.model import Refund
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import Settings
from tests.support.chain_comparison import case_subjects, compare_due
from tests.support.chain_refunds import RefundWorld
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.running_service import serving_api
from tests.support.world import Api

pytestmark = pytest.mark.full

BUYER, OTHER_ADDRESS = (to_checksum_address(bytes(19) + bytes([digit])) for digit in (7, 8))
NEEDS_ADDRESS, QUEUED, SENT = ("PENDING", "address"), ("PENDING", "queued"), ("PENDING", "sent")
NEEDS_APPROVAL, DONE = ("PENDING", "approval"), ("SUCCEEDED", "ended")


@dataclass(frozen=True)
class Stage:
    """A paid deposit, and a funded refund account."""

    world: RefundWorld
    deposits: DepositGround
    payment: Payment

    async def enter(self, refund: Refund, address: str) -> None:
        async with self.world.ground.world.database.transaction() as tx:
            await enter_buyer_address(tx, refund.id, address)


@pytest.fixture
async def stage(refunding: RefundWorld) -> Stage:
    deposits = await add_factory(refunding.ground, "USDT")
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await refunding.ground.final()
    assert await refunding.ground.status(payment) == "PAID"
    return Stage(refunding, deposits, payment)


async def test_a_refund_goes_to_the_address_that_the_buyer_enters(stage: Stage) -> None:
    world = stage.world
    refund = await world.ask(stage.payment)
    await world.turn()
    assert await world.read_state(refund) == NEEDS_ADDRESS
    await stage.enter(refund, BUYER)
    assert await world.read_state(refund) == QUEUED
    await world.turn()
    assert await world.read_state(refund) == SENT
    with pytest.raises(ConflictError):
        await stage.enter(refund, OTHER_ADDRESS)
    await world.ground.final()
    await world.turn()
    assert await world.read_state(refund) == DONE
    assert await world.balance("USDT", BUYER) == TOTAL
    assert await world.ground.status(stage.payment) == "REFUNDED"
    await compare_due(world.ground)
    runs = await world.ground.world.perform(ListReconciliationRuns())
    assert [run.status for run in runs] == ["matched", "matched"]
    assert await case_subjects(world.ground) == []


async def test_the_buyer_can_correct_the_address_once_before_the_refund_is_sent(
    stage: Stage,
) -> None:
    refund = await stage.world.ask(stage.payment)
    await stage.enter(refund, BUYER)
    await stage.enter(refund, OTHER_ADDRESS)
    with pytest.raises(ConflictError):
        await stage.enter(refund, BUYER)
    await stage.world.turn()
    assert await stage.world.balance("USDT", OTHER_ADDRESS) == TOTAL


async def test_only_two_of_three_concurrent_address_entries_are_accepted(stage: Stage) -> None:
    refund = await stage.world.ask(stage.payment)
    results = await asyncio.gather(
        *(stage.enter(refund, address) for address in (BUYER, OTHER_ADDRESS, BUYER)),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == [
        "ConflictError",
        "NoneType",
        "NoneType",
    ]


async def test_system_addresses_and_invalid_addresses_are_rejected(stage: Stage) -> None:
    refund = await stage.world.ask(stage.payment, "20.00")
    [row] = await stage.world.ground.world.rows("SELECT address FROM deposit_address")
    ground = stage.world.ground
    for address in (
        f"0x{row['address'].hex()}",
        ground.token("USDT"),
        ground.deployment.contract_address,
        stage.deposits.factory,
        stage.deposits.forwarder,
        ground.deployment.receiver,
        stage.world.refunder,
        "0x" + "0" * 40,
        BUYER[:-1],
        BUYER.replace("0x0", "0x1") + "1",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD",  # an invalid checksum
    ):
        with pytest.raises(BadRequestError):
            await stage.enter(refund, address)
        if address.startswith("0x") and len(address) == len(BUYER):
            with pytest.raises(BadRequestError):
                await stage.world.ask(stage.payment, "1.00", destination=address)
    assert await stage.world.read_state(refund) == NEEDS_ADDRESS


async def test_a_refund_to_the_sender_requires_the_buyer_and_an_approval(
    stage: Stage,
) -> None:
    sender = stage.world.ground.payer
    with pytest.raises(BadRequestError, match="may be an exchange"):
        await stage.world.ask(stage.payment, destination=sender)
    supervised = await stage.world.ask(stage.payment, "1.00", destination=OTHER_ADDRESS)
    assert await stage.world.read_state(supervised) == NEEDS_APPROVAL
    refund = await stage.world.ask(stage.payment, "2.00")
    await stage.enter(refund, sender)
    assert await stage.world.read_state(refund) == NEEDS_APPROVAL
    with pytest.raises(asyncpg.CheckViolationError, match="that the buyer has entered"):
        await stage.world.ground.world.rows(
            """
            INSERT INTO refund (id, capture_id, case_id, currency, amount_minor, step,
                requested_by, destination)
            SELECT gen_random_uuid(), id, gen_random_uuid(), 'USDT', 1, 'approval', 'Ada', $1
            FROM capture
            """,
            sender.lower(),
        )


async def test_a_case_of_a_deposit_is_not_refunded_without_an_address_from_the_buyer(
    stage: Stage,
) -> None:
    """Create every kind of case that other payments refund immediately, and resolve it."""
    deposits, world = stage.deposits, stage.world.ground.world
    ground = stage.world.ground
    await world.rows("UPDATE merchant SET auto_refund = true")
    await world.rows("UPDATE chain SET auto_refund_gas = 1000000000")
    payment, replaced = await deposits.bill()
    await world.select(payment, deposits.methods["USDT"])
    late_payment, late = await deposits.bill()
    undecided_payment, undecided = await deposits.bill()
    small_payment, small = await deposits.bill()
    await deposits.transfer(replaced)
    await deposits.transfer(small, 7)
    await ground.final()
    await ground.world.rows("UPDATE chain_cursor SET watched_until = '-infinity'")
    await deposits.expire(late_payment, look=False)
    async with world.database.transaction() as tx:
        await expire_stranded(tx, undecided_payment.id, ["onchain"])
    for session in (late, undecided):
        await deposits.transfer(session)
    await ground.final()
    await ground.final()
    await ground.pass_time(601)
    await ground.turn()
    kinds = {"ORPHAN_CAPTURE", "LATE_PAYMENT", "AMOUNT_MISMATCH"}
    assert kinds <= set(await ground.cases())
    assert await ground.status(small_payment) == "FAILED"
    assert await world.rows("SELECT FROM refund") == []
    for case in await world.rows("SELECT id FROM money_case WHERE status = 'OPEN'"):
        case_id = ids.format_id(ids.CASE, case["id"])
        to_sender = ResolveCase(
            case_id=case_id, resolution="refund", note="back", destination=ground.payer
        )
        with pytest.raises(BadRequestError, match="may be an exchange"):
            await world.perform(to_sender)
        await world.perform(ResolveCase(case_id=case_id, resolution="refund", note="back"))
    rows = await world.rows("SELECT step, destination FROM refund")
    assert {(row["step"], row["destination"]) for row in rows} == {("address", None)}


async def test_a_refund_above_the_limit_needs_approval(stage: Stage) -> None:
    await stage.world.ground.world.rows("UPDATE chain SET refund_approval_above = 1")
    refund = await stage.world.ask(stage.payment)
    await stage.enter(refund, BUYER)
    assert await stage.world.read_state(refund) == NEEDS_APPROVAL


async def test_a_case_refund_goes_to_the_address_that_the_buyer_enters(stage: Stage) -> None:
    deposits, world = stage.deposits, stage.world
    _, session = await deposits.bill()
    await deposits.transfer(session, TOTAL + 5)
    await world.ground.final()
    [case] = await world.ground.world.rows("SELECT id, capture_id FROM money_case")
    async with world.ground.world.database.transaction() as tx:
        refund = await refund_case(tx, case["id"], case["capture_id"], "Ada")
    assert await world.read_state(refund) == NEEDS_ADDRESS
    await stage.enter(refund, BUYER)
    await world.turn()
    await world.ground.final()
    await world.turn()
    assert await world.read_state(refund) == DONE
    assert await world.balance("USDT", BUYER) == 5


async def test_the_buyer_enters_the_address_on_a_page_linked_from_the_checkout(
    stage: Stage, api: Api
) -> None:
    checkout = f"/c/{stage.payment.checkout_id}"
    assert b"/c/refund/" not in (await api.send("GET", checkout)).body
    refund = await stage.world.ask(stage.payment)
    page = (await api.send("GET", checkout)).body.decode()
    [path] = re.findall(r'href="[^"]*(/c/refund/[^"]+)"', page)
    form = await api.send("GET", path)
    assert (form.status, form.headers["Cache-Control"]) == (200, "no-store")
    assert "25.50 USDT" in form.body.decode().replace("\u00a0", " ").replace("25.5 ", "25.50 ")
    for text in ("", "not an address", "0x" + "0" * 40, "<script>"):
        refused = await api.send("POST", path, data={"address": text})
        assert refused.status == 400
        assert "not a valid wallet address" in refused.body.decode()
        assert "<script>" not in refused.body.decode()
    saved = await api.send("POST", path, data={"address": f" {BUYER[:6]} {BUYER[6:]}\r\n"})
    assert (saved.status, saved.headers["Location"]) == (303, path)
    page = (await api.send("GET", path)).body.decode()
    assert BUYER in re.sub(r"<[^>]*>", "", page)
    assert await stage.world.read_state(refund) == QUEUED
    assert f'<a href="http://pay.test{path}"' in (await api.send("GET", checkout)).body.decode()


async def test_the_page_shows_a_refund_in_progress_until_it_succeeds(
    stage: Stage, api: Api
) -> None:
    world = stage.world.ground.world
    support = SetMerchantProfile(
        merchant_id=world.merchant_id, support_url="https://shop.test/help"
    )
    await world.perform(support)
    refund = await stage.world.ask(stage.payment)
    await stage.enter(refund, BUYER)
    path = f"/c/refund/{world.service.refund_address_links.create_code(refund.id)}"
    page = (await api.send("GET", path)).body.decode()
    assert "is refunding your payment" in page
    assert '<a href="https://shop.test/help"' in page
    assert "Secured by payintent" in page
    await stage.world.turn()
    await stage.world.ground.final()
    await stage.world.turn()
    page = (await api.send("GET", path)).body.decode()
    assert "The refund was sent to this address" in page
    assert "is refunding your payment" not in page


async def test_the_refund_address_page_uses_the_language_of_the_checkout(
    stage: Stage, api: Api
) -> None:
    await stage.world.ask(stage.payment)
    page = (await api.send("GET", f"/c/{stage.payment.checkout_id}?lang=ja")).body.decode()
    [path] = re.findall(r'href="[^"]*(/c/refund/[^"]+)"', page)
    form = (await api.send("GET", path)).body.decode()
    assert '<html lang="ja"' in form
    assert f'action="{path}"' in form
    refused = await api.send("POST", path, data={"address": "x"})
    assert (refused.status, '<html lang="ja"' in refused.body.decode()) == (400, True)
    saved = await api.send("POST", path, data={"address": BUYER})
    assert saved.headers["Location"] == path


async def test_a_refund_page_opens_only_with_its_own_link(stage: Stage, api: Api) -> None:
    refund = await stage.world.ask(stage.payment)
    links = stage.world.ground.world.service.refund_address_links
    code = links.create_code(refund.id)
    assert links.parse_code(code) == refund.id
    for changed in (code[:-1], code[:-1] + "A", code[::-1], "A" * len(code), "%00", "é"):
        assert (await api.send("GET", f"/c/refund/{changed}")).status == 404


async def test_neither_the_link_nor_the_address_is_logged(
    stage: Stage, api: Api, capfd: pytest.CaptureFixture[str]
) -> None:
    refund = await stage.world.ask(stage.payment)
    links = stage.world.ground.world.service.refund_address_links
    code = links.create_code(refund.id)
    path = f"/c/refund/{code}"
    await stage.world.ground.world.rows("ALTER TABLE deposit_address RENAME TO away")
    failed = await api.send("POST", path, data={"address": BUYER})
    await stage.world.ground.world.rows("ALTER TABLE away RENAME TO deposit_address")
    assert failed.status >= 500
    for address in ("nothing", BUYER, OTHER_ADDRESS, BUYER):
        await api.send("POST", path, data={"address": address})
    await stage.world.turn()
    await stage.world.ground.final()
    output = "".join(capfd.readouterr())
    assert output  # the failure was logged
    for secret in (code, code[-20:], BUYER, BUYER.lower(), OTHER_ADDRESS.lower()[2:]):
        assert secret not in output


async def test_requests_with_guessed_links_are_rate_limited(
    stage: Stage, settings: Settings
) -> None:
    limits = {"checkout_per_address_per_s": 1, "checkout_per_address_burst": 3}
    limited_settings = settings.model_copy(update=limits | {"edge_trusted_proxies": "127.0.0.1"})
    headers = {"X-Forwarded-For": "192.0.2.7"}
    async with serving_api(limited_settings, stage.world.ground.world) as api:
        path = f"/c/refund/{'A' * 44}"
        statuses = [(await api.send("GET", path, headers=headers)).status for _ in range(50)]
    assert statuses[0] == 404
    assert 429 in statuses
