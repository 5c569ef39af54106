"""Compare the token balances of a contract's receiver at a block with the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import overload

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import CallRevertedError, ChainReader
from payintent.domain.money import EXACT
from payintent.domain.onchain_refund import NATIVE
from payintent.evm.abi import encode_balance_of, to_uint
from payintent.storage.onchain.chains import TokenRecord
from payintent.storage.reconciliation_blocks import LedgerSum, ReceiverBalance

_WORD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Balances of a token in its smallest unit; None if no endpoint returned the balance."""

    token: TokenRecord
    receiver: int | None
    refunders: int | None


async def read_holdings(
    reader: ChainReader,
    tokens: Sequence[TokenRecord],
    receiver: bytes,
    refunders: Sequence[bytes],
    block: int,
) -> list[Holdings]:
    """Read the balances of the receiver and of the refund senders, for each token.

    Only an archive node returns balances that are older than a few hours.
    """
    senders = [address for address in dict.fromkeys(refunders) if address != receiver]
    holdings = list[Holdings]()
    for token in tokens:
        if token.address is None:
            continue
        balances = [await _read_balance(reader, token.address, sender, block) for sender in senders]
        known_balances = [balance for balance in balances if balance is not None]
        holdings.append(
            Holdings(
                token=token,
                receiver=await _read_balance(reader, token.address, receiver, block),
                refunders=sum(known_balances) if len(known_balances) == len(balances) else None,
            )
        )
    return holdings


def make_balances(
    holdings: Sequence[Holdings], ledger: Mapping[str, LedgerSum], block: int
) -> list[ReceiverBalance]:
    """Combine balances with the ledger; docs/decisions/books.md explains the expected minimum."""
    empty_sum = LedgerSum(minor=0, has_manual_entries=False)
    balances = list[ReceiverBalance]()
    for holding in holdings:
        ledger_sum = ledger.get(holding.token.symbol, empty_sum)
        decimals = holding.token.decimals
        total = _format_units(ledger_sum.minor, decimals)
        balance = ReceiverBalance(
            currency=holding.token.symbol,
            block=block,
            receiver=_format_units(holding.receiver, decimals),
            refunders=_format_units(holding.refunders, decimals),
            ledger=total,
            expected=total if ledger_sum.has_manual_entries else None,
        )
        balances.append(balance)
    return balances


@overload
def _format_units(minor: int, decimals: int) -> str: ...
@overload
def _format_units(minor: int | None, decimals: int) -> str | None: ...
def _format_units(minor: int | None, decimals: int) -> str | None:
    return None if minor is None else format(Decimal(minor).scaleb(-decimals, EXACT), "f")


async def _read_balance(reader: ChainReader, token: bytes, owner: bytes, block: int) -> int | None:
    for name in reader.names:
        try:
            if token == NATIVE:
                return await reader.coins(name, owner, block)
            answer = await reader.call(name, token, encode_balance_of(owner), block)
        except CallRevertedError:
            return None
        except ChainUnavailableError:
            continue
        if len(answer) == _WORD:
            return to_uint(answer)
    return None
