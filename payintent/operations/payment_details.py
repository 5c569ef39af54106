"""What an operator sees of a payment: what its merchant sees, and everything that was behind it."""

from typing import Any

from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.domain.session import Session
from payintent.evm.keccak import checksummed
from payintent.payments.serialization import payment_fields, timestamp
from payintent.storage import captures, payments, sessions
from payintent.storage.captures import Case
from payintent.storage.database import Executor
from payintent.storage.onchain import transfers
from payintent.storage.onchain.transfers import Kept

_TOLD_MAX = 60


async def trail(database: Executor, payment_id: str) -> dict[str, Any]:
    """Give a payment with its sessions, the chain's receipts and its cases.

    The checkout's id is masked: it is a capability. Refused (`NOT_FOUND`) where nobody has it.
    """
    parsed = ids.parse(ids.PAYMENT, payment_id)
    seen = await payments.by_id(database, parsed) if parsed else None
    if seen is None:
        raise Refused(Code.NOT_FOUND, f"no payment {payment_id[:_TOLD_MAX]}")
    payment = seen.payment
    known = {
        "checkout_id": ids.masked(payment.checkout_id),
        "sessions": [_session(one) for one in await sessions.of_payment(database, payment.id)],
        "receipts": [_receipt(one) for one in await transfers.of_payment(database, payment.id)],
        "cases": [_case(one) for one in await captures.cases_of(database, payment.id)],
    }
    return payment_fields(payment, seen.session) | known


def _session(session: Session) -> dict[str, Any]:
    offer = session.offer
    fields: dict[str, Any] = {
        "id": ids.text(ids.SESSION, session.id),
        "account_id": offer.account_id,
        "provider": offer.provider,
        "chain": offer.chain,
        "token": offer.token,
        "amount_smallest_unit": str(offer.total_minor),
        "reference": session.reference,
        "life": session.life,
        "outcome": session.outcome,
        "opened_at": timestamp(session.opened_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _receipt(receipt: Kept) -> dict[str, Any]:
    return {
        "session_id": ids.text(ids.SESSION, receipt.session_id),
        "disposition": receipt.disposition,
        "chain": receipt.chain,
        "block": receipt.block,
        "tx_hash": f"0x{receipt.tx_hash.hex()}",
        "log_index": receipt.log_index,
        "payer": checksummed(receipt.payer),
        "token": checksummed(receipt.token),
        "amount_smallest_unit": receipt.amount,
        "final_at": timestamp(receipt.final_at),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "id": ids.text(ids.CASE, case.id),
        "kind": case.kind,
        "status": case.status,
        "opened_at": timestamp(case.opened_at),
    }
