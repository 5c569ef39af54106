"""Create the states of a payment to an address, and of the refund address page."""

from payintent.core import ids
from payintent.payments.model import Payment, Session
from payintent.refunds.destination import enter_buyer_address
from payintent.refunds.model import Refund
from payintent.refunds.resolve_case import ResolveCase
from tests.support.deposits import TOTAL
from tests.web.gallery import Gallery
from tests.web.state_registry import Visit, embedded, state, visit_of

_HALF = TOTAL // 2
_OTHER_TOKEN = b"\x77" * 20
_BUYER, _CORRECTED = (f"0x{digits * 20}" for digits in ("a7", "b8"))


@state
async def deposit(gallery: Gallery) -> Visit:
    """Nothing has been received at the address."""
    bill, _ = await (await gallery.deposits()).bill()
    return visit_of(bill, ready=".address", texts=("deposit_none", "deposit_send"))


@state
async def deposit_partial(gallery: Gallery) -> Visit:
    """Half of the amount is in a block that is not final."""
    bill, _ = await _receive(gallery, _HALF)
    return visit_of(bill, ready=".address", texts=("deposit_send", "wallet_open"))


@state
async def deposit_partial_final(gallery: Gallery) -> Visit:
    bill, _ = await _receive(gallery, _HALF, is_final=True)
    return visit_of(bill, ready=".address", texts=("deposit_send",))


@state
async def deposit_other_token(gallery: Gallery) -> Visit:
    """A transfer of a different token is in a block that is not final."""
    deposits = await gallery.deposits()
    bill, session = await deposits.bill()
    await deposits.ground.world.rows(
        """
        INSERT INTO chain_sighting
            (chain, tx_hash, log_index, session_id, exact, block, token, amount, seen_at)
        VALUES ($1, $2, 0, $3, false, 7, $4, 5, clock())
        """,
        deposits.ground.slug,
        session.id.bytes * 2,
        session.id,
        _OTHER_TOKEN,
    )
    return visit_of(bill, ready=".address", texts=("deposit_none",))


@state
async def deposit_enough(gallery: Gallery) -> Visit:
    """The full amount is in a block that is not final."""
    bill, _ = await _receive(gallery, TOTAL)
    return visit_of(bill, texts=("deposit_time",))


@state
async def deposit_late(gallery: Gallery) -> Visit:
    """A part has been received, and too little time remains to send the rest."""
    bill, _ = await _receive(gallery, _HALF)
    await _set_deadline(gallery, bill, 55)
    return visit_of(bill, texts=("deposit_late",))


@state
async def deposit_over(gallery: Gallery) -> Visit:
    """The deadline has passed, but the chain has not been scanned up to it."""
    bill, _ = await _receive(gallery, _HALF)
    await _set_deadline(gallery, bill, -1)
    return visit_of(bill, texts=("time_over",))


@state
async def deposit_embedded(gallery: Gallery) -> Visit:
    """A frame can show an address because it does not need a wallet in the page."""
    bill, _ = await (await gallery.deposits()).bill()
    return visit_of(bill, embedded(gallery), ready="[data-embed] .address")


@state
async def deposit_paid(gallery: Gallery) -> Visit:
    bill, _ = await _receive(gallery, TOTAL, is_final=True)
    return visit_of(bill, texts=("paid", "receipt_open"))


@state
async def deposit_failed(gallery: Gallery) -> Visit:
    """Too little had been received by the deadline."""
    bill, _ = await _receive(gallery, _HALF, is_final=True)
    await _pass_deadline(gallery, bill)
    return visit_of(bill, texts=("failed", "deposit_refund"))


@state
async def deposit_expired(gallery: Gallery) -> Visit:
    bill, _ = await (await gallery.deposits()).bill()
    await _pass_deadline(gallery, bill)
    return visit_of(bill, texts=("expired", "deposit_refund"))


@state
async def deposit_refunding(gallery: Gallery) -> Visit:
    """Too little had been received, and the refund needs an address."""
    bill, _ = await _receive(gallery, _HALF, is_final=True)
    await _pass_deadline(gallery, bill)
    await _refund_case(gallery, bill)
    return visit_of(bill, texts=("failed", "refund_address_link"))


# The refund address page


@state
async def refund_address(gallery: Gallery) -> Visit:
    return _refund_page(gallery, await _refund(gallery), texts=("refund_address_enter",))


@state
async def refund_address_invalid(gallery: Gallery) -> Visit:
    return _refund_page(
        gallery,
        await _refund(gallery),
        status=400,
        posts="main form button",
        entry=_BUYER[:-1],
        texts=("refund_address_invalid",),
    )


@state
async def refund_address_saved(gallery: Gallery) -> Visit:
    refund = await _refund(gallery, _BUYER)
    return _refund_page(gallery, refund, texts=("refund_address_saved", "refund_address_change"))


@state
async def refund_address_corrected(gallery: Gallery) -> Visit:
    """The address can no longer be changed."""
    refund = await _refund(gallery, _BUYER, _CORRECTED)
    return _refund_page(gallery, refund, texts=("refund_address_saved",))


@state
async def refund_address_sent(gallery: Gallery) -> Visit:
    refunds = await gallery.refunds()
    refund = await _refund(gallery, _BUYER)
    await refunds.turn()
    await refunds.ground.final()
    await refunds.turn()
    texts = ("refund_address_sent", "refund_address_transaction")
    return _refund_page(gallery, refund, texts=texts)


async def _receive(
    gallery: Gallery, amount: int, *, is_final: bool = False
) -> tuple[Payment, Session]:
    deposits = await gallery.deposits()
    bill, session = await deposits.bill()
    await deposits.transfer(session, amount)
    await deposits.ground.catch_up()
    if is_final:
        await deposits.ground.final()
    return bill, session


async def _set_deadline(gallery: Gallery, payment: Payment, seconds: int) -> None:
    """Set only this payment's deadline, to this many seconds from now."""
    await gallery.plain.rows(
        "UPDATE payment SET expires_at = clock() + $2::int * interval '1 second' WHERE id = $1",
        payment.id,
        seconds,
    )


async def _pass_deadline(gallery: Gallery, payment: Payment) -> None:
    deposits = await gallery.deposits()
    await _set_deadline(gallery, payment, 60)
    await deposits.expire(payment)


async def _refund_case(gallery: Gallery, payment: Payment) -> None:
    [case] = await gallery.plain.rows("SELECT id FROM money_case WHERE payment_id = $1", payment.id)
    case_id = ids.format_id(ids.CASE, case["id"])
    await gallery.plain.perform(ResolveCase(case_id=case_id, resolution="refund", note="asked"))


async def _refund(gallery: Gallery, *addresses: str) -> Refund:
    """Refund a deposit, and enter the buyer's addresses in order."""
    refunds = await gallery.refunds()
    bill, _ = await _receive(gallery, TOTAL, is_final=True)
    refund = await refunds.ask(bill)
    for address in addresses:
        async with gallery.plain.database.transaction() as tx:
            await enter_buyer_address(tx, refund.id, address)
    return refund


def _refund_page(gallery: Gallery, refund: Refund, **fields: object) -> Visit:
    code = gallery.plain.service.refund_address_links.create_code(refund.id)
    return Visit(path=f"/c/refund/{code}", **fields)
