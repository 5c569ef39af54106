"""Records what gateways paid out, with its entry in the ledger: once for each reference."""

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.ledger import GatewayPayout, gateway_payout_entries
from payintent.storage import gateway_payouts, ledger
from payintent.storage.database import Tx
from payintent.storage.payouts import NewPayout


async def record_gateway_payout(tx: Tx, new: NewPayout[GatewayPayout]) -> bool:
    """Record a payout and its entry; False where the same one was recorded before.

    Raises `CONFLICT` where its account's reference is recorded with another amount.
    """
    payout = new.payout
    if await gateway_payouts.add(tx, new):
        await ledger.add(tx, gateway_payout_entries(payout))
        return True
    standing = await gateway_payouts.TABLE.find_standing(tx, payout.account_id, new.reference)
    if standing is None or _amounts(standing.payout) != _amounts(payout):
        raise RefusedError(
            ErrorCode.CONFLICT, f"payout {new.reference!r} is recorded with another amount"
        )
    return False


async def reverse_gateway_payout(tx: Tx, account_id: int, reference: str, who: str) -> bool:
    """Enter that a payout has come back; False where none of this reference stands.

    A return is listed more than once, and entered once: what a person has recorded of the reference
    since then stands.
    """
    if await gateway_payouts.has_reversed(tx, account_id, reference, who):
        return False
    table = gateway_payouts.TABLE
    standing = await table.find_standing(tx, account_id, reference)
    if standing is None:
        return False
    payout = standing.payout
    await table.lock(tx, payout.id)
    if await table.find_standing(tx, account_id, reference) is None:
        return False
    await table.reverse(tx, payout.id, who, "the gateway lists it as come back")
    await ledger.add(tx, gateway_payout_entries(payout, reversal=True))
    return True


def _amounts(payout: GatewayPayout) -> tuple[int, int, str]:
    return payout.amount_minor, payout.fee_minor, payout.currency
