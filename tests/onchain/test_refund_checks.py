"""`doctor` checks on-chain refunds: the signer, its money, and missing settings."""

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
from tests.support.onchain import ChainWorld
from tests.support.patience import wait_until
from tests.support.refunding import COIN, Mood, RefundWorld
from tests.support.world import free_port

pytestmark = pytest.mark.full

KEY = "a-key-that-is-secret"


async def found(world: RefundWorld, signer: ExternalSigner | None = None) -> list[tuple[bool, str]]:
    """Return doctor's findings."""
    ground = world.ground
    database = ground.world.database
    row = await chain_store.get_chain(database, ground.slug)
    assert row is not None
    asked = signer or world.refund_senders[ground.slug].signer
    tokens = await chain_store.list_tokens(database, ground.slug)
    contracts = await chain_store.list_contracts(database, ground.slug)
    findings = check_refund_setup(asked, ground.reader, row, tokens, contracts)
    return [(one.is_ok, one.text) async for one in findings]


async def test_a_refunder_with_a_key_coins_and_an_allowance_is_right(
    refunding: RefundWorld,
) -> None:
    told = await found(refunding)
    assert [right for right, _ in told] == [True] * 3
    signer, coins, token = (text for _, text in told)
    refunder = to_checksum_address(bytes.fromhex(refunding.refunder[2:]))
    assert signer == f"the signer has a key for {refunder}"
    assert coins.startswith(f"the refunder {refunder} has ")
    assert coins.endswith(" NATIVED")
    assert token.endswith("has 1000000 and can refund all of it")


async def test_each_thing_that_is_missing_is_named(refunding: RefundWorld) -> None:
    ground = refunding.ground
    stranger = "0x" + 40 * "1"
    await ground.world.perform(SetChain(chain="native", refunder=stranger))
    wrong = [text for right, text in await found(refunding) if not right]
    assert len(wrong) == 3
    assert (
        wrong[0]
        == f"the signer does not have a key for {to_checksum_address(bytes.fromhex(stranger[2:]))}"
    )
    assert wrong[1].endswith("has 0 NATIVED")
    assert wrong[2].endswith("has 0 and can refund all of it")


async def test_an_allowance_that_is_too_small_is_told(refunding: RefundWorld) -> None:
    contract = bytes.fromhex(refunding.ground.deployment.contract_address[2:])
    for amount, told in ((0, "can refund 0"), (25 * COIN // 10, "can refund 2.5")):
        data = f"0x{abi.encode_approve(contract, amount).hex()}"
        step = {"to": refunding.ground.token("USDT"), "value": "0x0", "data": data}
        await refunding.ground.send(step, refunding.refunder)
        right, text = (await found(refunding))[-1]
        assert (right, text.endswith(told)) == (amount > 0, True)


async def test_a_signer_of_another_chain_or_none_is_told(refunding: RefundWorld) -> None:
    await refunding.ground.world.rows("UPDATE chain SET network_id = 7 WHERE slug = 'native'")
    assert (False, "the signer is on chain 612055, expected chain 7") in await found(refunding)
    away = open_signers({"native": f"http://127.0.0.1:{free_port()}/{KEY}"})["native"]
    wrong = [text for right, text in await found(refunding, away) if not right]
    assert wrong[0] == "refunds are on hold: native-signer returns no usable response: connection"
    await away.close()


async def test_no_signer_and_no_refunder_are_told(ground: ChainWorld) -> None:
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None
    for signer, missing in (
        (None, "signer"),
        (ExternalSigner("native", "http://a.test"), "refunder"),
    ):
        told = [one async for one in check_refund_setup(signer, ground.reader, row, [], [])]
        assert [(one.is_ok, one.text) for one in told] == [
            (False, f"refunds are on hold: no {missing} is configured")
        ]


async def test_the_signers_address_is_told_to_nobody(
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
    told = capfd.readouterr()
    text = f"{caplog.text}{told.out}{told.err}{refunding.refund_senders!r}"
    assert "refund_unanswered" in text
    assert KEY not in text
    assert "127.0.0.1" not in text


async def test_what_surely_was_not_sent_differs_from_silence(refunding: RefundWorld) -> None:
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
    silent = await refunder.signer.send(sender, call, gas)
    assert isinstance(silent, OutcomeUnknown)
    assert not isinstance(silent, NotContacted)
    await wait_until(lambda: refunding.signer.sent, "the signer has sent, however slow it is")
    assert len(refunding.signer.sent) == 1
    refunding.signer.away = True
    refunding.ground.clock.skipped_s += 60
    assert isinstance(await refunder.signer.estimate(sender, call, GAS_MAX), NotContacted)
