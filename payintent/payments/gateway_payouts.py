"""Records what gateways paid out, with its entry in the ledger: once for each reference."""

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.ledger import GatewayPayout, gateway_payout_entries
from payintent.storage import gateway_payouts, ledger
from payintent.storage.database import Tx
from payintent.storage.gateway_payouts import NewGatewayPayout


async def record_gateway_payout(tx: Tx, new: NewGatewayPayout) -> bool:
    """Record a payout and its entry; False where the same one was recorded before.

    Raises `CONFLICT` where its account's reference is recorded with another amount.
    """
    payout = new.payout
    if await gateway_payouts.add(tx, new):
        await ledger.add(tx, gateway_payout_entries(payout))
        return True
    standing = await gateway_payouts.find_standing(tx, payout.account_id, new.reference)
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
    standing = await gateway_payouts.find_standing(tx, account_id, reference)
    if standing is None:
        return False
    await gateway_payouts.lock(tx, standing.payout.id)
    if await gateway_payouts.find_standing(tx, account_id, reference) is None:
        return False
    await gateway_payouts.reverse(tx, standing.payout.id, who, "the gateway lists it as come back")
    await ledger.add(tx, gateway_payout_entries(standing.payout, reversal=True))
    return True


def _amounts(payout: GatewayPayout) -> tuple[int, int, str]:
    return payout.amount_minor, payout.fee_minor, payout.currency
