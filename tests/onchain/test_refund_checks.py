"""`doctor` checks on-chain refunds: the signer, its balances, and missing settings."""

import logging
from uuid import uuid4

import pytest

from payintent.chains import store as chain_store
from payintent.chains.signer_checks import check_refund_setup
from payintent.evm import abi
from payintent.evm.abi import to_checksum_address
from payintent.evm.port import GAS_MAX, ContractRefundCall
from payintent.evm.refund_sender import open_refund_senders
from payintent.evm.signer import ExternalSigner, open_signers
from payintent.gateways.port import NotContacted, OutcomeUnknown
from payintent.onchain.operations import SetChain
from tests.support.chain_refunds import COIN, Mood, RefundWorld
from tests.support.onchain import ChainWorld
from tests.support.ports import free_port
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.full

KEY = "a-key-that-is-secret"


async def run_checks(
    world: RefundWorld, signer: ExternalSigner | None = None
) -> list[tuple[bool, str]]:
    ground = world.ground
    database = ground.world.database
    row = await chain_store.get_chain(database, ground.slug)
    assert row is not None
    checked_signer = signer or world.refund_senders[ground.slug].signer
    tokens = await chain_store.list_tokens(database, ground.slug)
    contracts = await chain_store.list_contracts(database, ground.slug)
    findings = check_refund_setup(checked_signer, ground.reader, row, tokens, contracts)
    return [(finding.is_ok, finding.text) async for finding in findings]


async def test_doctor_passes_a_refunder_with_a_key_coins_and_an_allowance(
    refunding: RefundWorld,
) -> None:
    findings = await run_checks(refunding)
    assert [is_ok for is_ok, _ in findings] == [True] * 3
    signer, coins, token = (text for _, text in findings)
    refunder = to_checksum_address(bytes.fromhex(refunding.refunder[2:]))
    assert signer == f"the signer has a key for {refunder}"
    assert coins.startswith(f"the refunder {refunder} has ")
    assert coins.endswith(" NATIVED")
    assert token.endswith("has 1000000 and can refund all of it")


async def test_doctor_reports_every_missing_prerequisite(refunding: RefundWorld) -> None:
    ground = refunding.ground
    stranger = "0x" + 40 * "1"
    await ground.world.perform(SetChain(chain="native", refunder=stranger))
    problems = [text for is_ok, text in await run_checks(refunding) if not is_ok]
    assert len(problems) == 3
    assert (
        problems[0]
        == f"the signer does not have a key for {to_checksum_address(bytes.fromhex(stranger[2:]))}"
    )
    assert problems[1].endswith("has 0 NATIVED")
    assert problems[2].endswith("has 0 and can refund all of it")


async def test_doctor_reports_the_refundable_amount_of_an_allowance(refunding: RefundWorld) -> None:
    contract = bytes.fromhex(refunding.ground.deployment.contract_address[2:])
    for amount, ending in ((0, "can refund 0"), (25 * COIN // 10, "can refund 2.5")):
        data = f"0x{abi.encode_approve(contract, amount).hex()}"
        step = {"to": refunding.ground.token("USDT"), "value": "0x0", "data": data}
        await refunding.ground.send(step, refunding.refunder)
        is_ok, text = (await run_checks(refunding))[-1]
        assert (is_ok, text.endswith(ending)) == (amount > 0, True)


async def test_doctor_reports_a_signer_that_is_unreachable_or_on_a_different_chain(
    refunding: RefundWorld,
) -> None:
    await refunding.ground.world.rows("UPDATE chain SET network_id = 7 WHERE slug = 'native'")
    assert (False, "the signer is on chain 612055, expected chain 7") in await run_checks(refunding)
    unreachable = open_signers({"native": f"http://127.0.0.1:{free_port()}/{KEY}"})["native"]
    problems = [text for is_ok, text in await run_checks(refunding, unreachable) if not is_ok]
    assert (
        problems[0] == "refunds are on hold: native-signer returned no usable response: connection"
    )
    await unreachable.close()


async def test_doctor_reports_a_missing_signer_or_refunder(ground: ChainWorld) -> None:
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None
    for signer, missing in (
        (None, "signer"),
        (ExternalSigner("native", "http://a.test"), "refunder"),
    ):
        findings = [
            finding async for finding in check_refund_setup(signer, ground.reader, row, [], [])
        ]
        assert [(finding.is_ok, finding.text) for finding in findings] == [
            (False, f"refunds are on hold: no {missing} is configured")
        ]


async def test_the_url_of_the_signer_is_never_logged(
    refunding: RefundWorld, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    payment, _ = await refunding.paid()
    await refunding.ask(payment)
    assert KEY in refunding.signer.url
    refunding.signer.away = True
    await refunding.turn()
    refunding.signer.away = False
    for mood in (Mood.REFUSES, Mood.SILENT):
        refunding.signer.mood = mood
        await refunding.ground.world.rows("UPDATE refund SET step = 'queued'")
        await refunding.turn()
    assert open_refund_senders({"native": f"ws://{KEY}/{KEY}"}, {"native": ["http://a.test"]}) == {}
    output = capfd.readouterr()
    text = f"{caplog.text}{output.out}{output.err}{refunding.refund_senders!r}"
    assert "refund_unanswered" in text
    assert KEY not in text
    assert "127.0.0.1" not in text


async def test_a_refund_that_was_certainly_not_sent_differs_from_a_lost_response(
    refunding: RefundWorld,
) -> None:
    refunder, sender = refunding.refund_senders["native"], bytes.fromhex(refunding.refunder[2:])
    call = ContractRefundCall(
        network_id=612_055,
        contract=bytes.fromhex(refunding.ground.deployment.contract_address[2:]),
        uuid=bytes(16),
        refund_id=uuid4().bytes,
        token=bytes(20),
        to=20 * b"\x09",
        amount=7,
    )
    gas = await refunder.signer.estimate(sender, call, GAS_MAX)
    assert isinstance(gas, int)
    refunding.signer.mood = Mood.LOSES
    outcome = await refunder.signer.send(sender, call, gas)
    assert isinstance(outcome, OutcomeUnknown)
    assert not isinstance(outcome, NotContacted)
    await wait_until(lambda: refunding.signer.sent, "the signer has sent the transaction")
    assert len(refunding.signer.sent) == 1
    refunding.signer.away = True
    refunding.ground.clock.skipped_s += 60
    assert isinstance(await refunder.signer.estimate(sender, call, GAS_MAX), NotContacted)
