"""`payintent-cli verify-deposit pay_…`: check a deposit address against a chain description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from payintent_sdk import Client
from payintent_sdk.calls import Call
from payintent_sdk.deposits import WrongDepositAddressError, load_chain, verify_deposit_address
from payintent_sdk.errors import UnreadableAnswerError
from payintent_sdk.onchain import Chain, OnchainSession

from payintent_cli.keys import Access
from payintent_cli.usage import UsageError


def verify(access: Access, id_: str, files: Sequence[str], address: str | None) -> None:
    """Print the deposit address of a payment or session, and the amounts received there.

    If `address` is set, it is compared with the verified address.
    """
    chains = [_load(file) for file in files]
    with Client(access.key, access.base_url) as client:
        session_id = _find_session(client, id_) if id_.startswith("pay_") else id_
        session = client.onchain.get_session(session_id)
    if session.deposit_address is None:
        raise UsageError(f"{session_id} is not paid to a deposit address")
    verified = verify_deposit_address(session, *chains)
    if address is not None and address.lower() != verified.lower():
        raise WrongDepositAddressError(
            f"the deposit address of {session_id} is {verified}, not {address}."
            " Do not send money there."
        )
    print(f"verified: {verified} is the deposit address of {session_id} on {session.chain.name}")
    print(_describe_amounts(session), flush=True)


def _load(file: str) -> Chain:
    try:
        return load_chain(Path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except UnreadableAnswerError as error:
        raise UsageError(f"{file} is not a response from GET /v1/chains: {error}") from error


def _find_session(client: Client, payment_id: str) -> str:
    """Return the id of a payment's current on-chain session."""
    payment = client.payments.get(payment_id)
    checkout: Any = client.send(
        Call(method="GET", path=f"/v1/checkout/{payment.checkout_id}", read=lambda answer: answer)
    )
    try:
        return str(checkout["next_action"]["onchain_session"]["session_id"])
    except (KeyError, TypeError):
        raise UsageError(
            f"{payment_id} does not have an open on-chain session: it is {payment.status}"
        ) from None


def _describe_amounts(session: OnchainSession) -> str:
    amounts = {
        "received": session.received,
        "pending": session.pending,
        "remaining": session.remaining,
    }
    return ", ".join(
        f"{name} {amount.amount} {session.token.symbol}"
        for name, amount in amounts.items()
        if amount is not None
    )
