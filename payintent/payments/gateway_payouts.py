"""Recording and reversing gateway payouts, together with their ledger entries."""

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.ledger import GatewayPayout, gateway_payout_entries
from payintent.storage import gateway_payouts, ledger
from payintent.storage.database import Tx
from payintent.storage.payouts import NewPayout


async def record_gateway_payout(tx: Tx, new: NewPayout[GatewayPayout]) -> bool:
    """Record a payout and its ledger entries; return False if it was recorded before.

    Raises `CONFLICT` if the account's reference is recorded with a different amount.
    """
    payout = new.payout
    if await gateway_payouts.add(tx, new):
        await ledger.add(tx, gateway_payout_entries(payout))
        return True
    active = await gateway_payouts.TABLE.find_active(tx, payout.account_id, new.reference)
    if active is None or _amounts(active.payout) != _amounts(payout):
        raise RefusedError(
            ErrorCode.CONFLICT, f"payout {new.reference!r} is recorded with a different amount"
        )
    return False


async def reverse_gateway_payout(tx: Tx, account_id: int, reference: str, who: str) -> bool:
    """Reverse a returned payout; return False if no active payout has this reference.

    A gateway lists a return repeatedly, but it is entered once: a payout that a person recorded
    under the same reference afterwards is not reversed.
    """
    if await gateway_payouts.has_reversed(tx, account_id, reference, who):
        return False
    table = gateway_payouts.TABLE
    active = await table.find_active(tx, account_id, reference)
    if active is None:
        return False
    await table.lock(tx, active.id)
    if await table.find_active(tx, account_id, reference) is None:
        return False
    await table.reverse(tx, active.id, who, "the gateway lists it as returned")
    await ledger.add(tx, gateway_payout_entries(active.payout, reversal=True))
    return True


def _amounts(payout: GatewayPayout) -> tuple[int, int, str]:
    return payout.amount_minor, payout.fee_minor, payout.currency
