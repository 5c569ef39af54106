"""What a contract's receiver has of each token at a block, beside what the ledger has of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

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
    """What was read of a token at a block, in its smallest units; None: no endpoint told it."""

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
    """Read what a receiver has of each token, and what the senders of refunds have beside it.

    A node tells balances of a few hours at most, unless it is an archive. What none tells is None.
    """
    others = [address for address in dict.fromkeys(refunders) if address != receiver]
    found = list[Holdings]()
    for token in tokens:
        if token.address is None:
            continue
        sums = [await _read(reader, token.address, address, block) for address in others]
        answered = [amount for amount in sums if amount is not None]
        found.append(
            Holdings(
                token=token,
                receiver=await _read(reader, token.address, receiver, block),
                refunders=sum(answered) if len(answered) == len(sums) else None,
            )
        )
    return found


def make_balances(
    holdings: Sequence[Holdings], ledger: Mapping[str, LedgerSum], block: int
) -> list[ReceiverBalance]:
    """Put what was read beside the ledger; docs/decisions/books.md says what to expect."""
    none = LedgerSum(minor=0, is_kept=False)
    made = list[ReceiverBalance]()
    for held in holdings:
        entered = ledger.get(held.token.symbol, none)
        decimals = held.token.decimals
        total = _text(entered.minor, decimals)
        balance = ReceiverBalance(
            currency=held.token.symbol,
            block=block,
            receiver=None if held.receiver is None else _text(held.receiver, decimals),
            refunders=None if held.refunders is None else _text(held.refunders, decimals),
            ledger=total,
            expected=total if entered.is_kept else None,
        )
        made.append(balance)
    return made


def _text(minor: int, decimals: int) -> str:
    return format(Decimal(minor).scaleb(-decimals, EXACT), "f")


async def _read(reader: ChainReader, token: bytes, owner: bytes, block: int) -> int | None:
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
