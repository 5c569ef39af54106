"""Builds the response fields that only deposit sessions have."""

from collections.abc import Sequence
from typing import Any

from payintent.chains.store import DeployedContract, TokenRecord
from payintent.core.money import format_smallest_units
from payintent.evm.abi import to_checksum_address, to_hex
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.onchain.pending_deposits_store import ReceivedAmounts, SessionTransfer
from payintent.payments.model import Session


def build_factory_fields(factory: DeployedContract) -> dict[str, Any]:
    """Return the values from which anyone can recompute a deposit address."""
    assert factory.forwarder is not None  # noqa: S101 - the caller has checked it
    return {
        "factory_address": to_checksum_address(factory.address),
        "forwarder_address": to_checksum_address(factory.forwarder),
        "init_code_hash": to_hex(init_code_hash(factory.forwarder)),
        "receiver": to_checksum_address(factory.receiver),
    }


def build_deposit_fields(
    session: Session,
    token: TokenRecord,
    network_id: int,
    factory: DeployedContract,
    amounts: ReceivedAmounts,
    transfers: Sequence[SessionTransfer],
) -> dict[str, Any]:
    """Return the deposit address, and how much of the amount has arrived there.

    `remaining` counts pending transfers as received, so that the buyer does not send them again.
    """
    factory_fields = build_factory_fields(factory)
    uuid = bytes.fromhex((session.reference or "")[2:])
    init_hash = bytes.fromhex(factory_fields["init_code_hash"][2:])
    address = derive_deposit_address(factory.address, init_hash, uuid)
    remaining = max(0, session.quote.total_minor - amounts.final - amounts.pending)
    return {
        "deposit_address": to_checksum_address(address),
        **factory_fields,
        "received": _amount_fields(amounts.final, token),
        "pending": _amount_fields(amounts.pending, token),
        "remaining": _amount_fields(remaining, token),
        "links": {"eip681": _build_eip681_url(address, token, network_id, remaining)},
        "transactions": [
            {
                "tx_hash": to_hex(transfer.tx_hash),
                "step": "deposit",
                "state": _describe_state(transfer, token),
                "amount_smallest_unit": str(transfer.amount),
            }
            for transfer in transfers
        ],
    }


def describe_deposit_status(amounts: ReceivedAmounts, total: int) -> str:
    """Return a session's status, which depends on how much of `total` has been received."""
    received = amounts.final + amounts.pending
    if not received:
        return "awaiting_payment"
    return "confirming" if received >= total else "partial"


def _amount_fields(amount: int, token: TokenRecord) -> dict[str, str]:
    return {
        "amount": format_smallest_units(amount, token.symbol, token.decimals, on_chain=True) or "0",
        "amount_smallest_unit": str(amount),
    }


def _describe_state(transfer: SessionTransfer, token: TokenRecord) -> str:
    if transfer.token != token.address:
        return "mismatch"
    return "final" if transfer.is_final else "sighted"


def _build_eip681_url(address: bytes, token: TokenRecord, network_id: int, amount: int) -> str:
    """Return the transfer as an EIP-681 URL. Wallets that cannot read it use the bare address."""
    contract = to_checksum_address(token.address or b"")
    recipient = to_checksum_address(address)
    return f"ethereum:{contract}@{network_id}/transfer?address={recipient}&uint256={amount}"
