"""A contract's logs as the lines of a list, read in bounded pieces from one endpoint.

What that one leaves out and we have is looked for at another one before anybody is told.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import (
    BlockRangeTooLargeError,
    ChainReader,
    PaidLog,
    RefundedLog,
)
from payintent.domain.money import EXACT
from payintent.domain.settlement_file import ProviderFileLine
from payintent.storage.onchain.chains import TokenRecord

PIECE_LOGS_MAX = 5_000
PIECE_SEARCHES_MAX = 20
_Log = TypeVar("_Log", PaidLog, RefundedLog)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """The logs of the blocks up to `last_block`, whose time is `at`, as an endpoint has them."""

    endpoint: str
    last_block: int
    at: datetime
    paid: list[PaidLog] = field(default_factory=list[PaidLog])
    refunded: list[RefundedLog] = field(default_factory=list[RefundedLog])
    left_out_by: str | None = None  # the endpoint that lacked some of these logs


async def read_piece(
    reader: ChainReader,
    contract: bytes,
    start: int,
    last: int,
    lacks: Callable[[LogPiece], Awaitable[bool]],
) -> LogPiece:
    """Read logs from `start` on, not beyond `last`, from the endpoint that is least asked else.

    Where that one `lacks` logs that we have, another endpoint's are put to them, as far as both
    have read. Raises `ChainUnavailableError` where no endpoint gives logs, or no other one does.
    """
    names = list(reversed(reader.names))
    piece = await _read_any(reader, names, contract, start, last)
    others = [name for name in names if name != piece.endpoint]
    if not others or not await lacks(piece):
        return piece
    other = await _read_any(reader, others, contract, start, piece.last_block)
    return _joined(piece, other)


async def _read_any(
    reader: ChainReader, names: Sequence[str], contract: bytes, start: int, last: int
) -> LogPiece:
    failed = ChainUnavailableError("there is no endpoint")
    for name in names:
        try:
            return await _read_from(reader, name, contract, start, last)
        except ChainUnavailableError as error:
            failed = error
    raise failed


def _joined(piece: LogPiece, shorter: LogPiece) -> LogPiece:
    """Put the logs of a piece to those of another one that ends no later, and as that one does."""
    last = shorter.last_block
    had_paid = [log for log in piece.paid if log.block_number <= last]
    had_refunded = [log for log in piece.refunded if log.block_number <= last]
    paid = _merged(had_paid, shorter.paid)
    refunded = _merged(had_refunded, shorter.refunded)
    is_more = len(paid) + len(refunded) > len(had_paid) + len(had_refunded)
    left_out_by = piece.endpoint if is_more else None
    return replace(shorter, paid=paid, refunded=refunded, left_out_by=left_out_by)


def _merged(logs: Iterable[_Log], more: Iterable[_Log]) -> list[_Log]:
    """Return each log once; the first of two that stand at one place."""
    at_place = dict[tuple[bytes, int], _Log]()
    for log in (*logs, *more):
        at_place.setdefault((log.tx_hash, log.log_index), log)
    return list(at_place.values())


async def _read_from(
    reader: ChainReader, name: str, contract: bytes, start: int, last: int
) -> LogPiece:
    paid, refunded = list[PaidLog](), list[RefundedLog]()
    searches, at = 0, start
    while True:
        end = min(at + reader.span(name) - 1, last)
        try:
            batch = await reader.chunk(name, at, end, [contract], None)
        except BlockRangeTooLargeError:
            if end == at:
                raise
            continue
        paid += batch.logs
        refunded += batch.refunds
        searches, at = searches + 1, end + 1
        full = len(paid) + len(refunded) >= PIECE_LOGS_MAX or searches == PIECE_SEARCHES_MAX
        if end == last or full:
            return LogPiece(
                endpoint=name, last_block=end, at=batch.end.at, paid=paid, refunded=refunded
            )


def make_lines(
    piece: LogPiece,
    receiver: bytes,
    refunders: Sequence[bytes],
    currencies: Mapping[bytes, str],
    decimals: Mapping[str, int],
) -> list[ProviderFileLine]:
    """Make lines of payments to the receiver, and of refunds by senders of ours.

    Whoever likes may send refunds of their own money by the contract, and a payment to another
    receiver is no money of ours: it has its case as what it is.
    """
    found: list[tuple[str, PaidLog | RefundedLog, UUID | None]] = [
        *(("payment", log, None) for log in piece.paid if log.receiver == receiver),
        *(
            ("refund", log, UUID(bytes=log.refund_id))
            for log in piece.refunded
            if log.sender in refunders
        ),
    ]
    lines = list[ProviderFileLine]()
    for number, (type_, log, our_id) in enumerate(found, 1):
        currency = currencies.get(log.token, f"0x{log.token.hex()}")
        lines.append(
            ProviderFileLine(
                number=number,
                type=type_,
                reference=f"0x{log.tx_hash.hex()}:{log.log_index}",
                our_id=our_id,
                amount=Decimal(log.amount).scaleb(-decimals.get(currency, 0), EXACT),
                currency=currency,
                at=piece.at,
            )
        )
    return lines


def name_tokens(tokens: Sequence[TokenRecord]) -> dict[bytes, str]:
    """Return the symbols of tokens by their addresses, as captures are kept in."""
    return {
        token.address: token.symbol
        for token in sorted(tokens, key=lambda token: token.symbol)
        if token.address is not None
    }
