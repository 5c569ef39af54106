"""Read a contract's logs as reconciliation lines, in bounded ranges.

If an endpoint omits logs of known captures or refunds, a second endpoint is queried before the
captures or refunds are reported as differences.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

from payintent.chains.store import TokenRecord
from payintent.core.errors import ChainUnavailableError
from payintent.core.money import EXACT
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import BlockRangeTooLargeError, PaidLog, RefundedLog
from payintent.gateways.settlement_reports import ProviderFileLine

RANGE_LOGS_MAX = 5_000
RANGE_SEARCHES_MAX = 20
_Log = TypeVar("_Log", PaidLog, RefundedLog)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The logs that an endpoint returned, up to `last_block` with the timestamp `at`."""

    endpoint: str
    last_block: int
    at: datetime
    paid_logs: list[PaidLog] = field(default_factory=list[PaidLog])
    refunded_logs: list[RefundedLog] = field(default_factory=list[RefundedLog])
    incomplete_endpoint: str | None = None  # the endpoint that omitted some of these logs


async def read_range(
    reader: RpcChainReader,
    contract: bytes,
    start: int,
    last_block: int,
    is_incomplete: Callable[[LogRange], Awaitable[bool]],
) -> LogRange:
    """Read logs from block `start` up to `last_block`.

    The last configured endpoint is tried first, because other queries use it least.

    If `is_incomplete` returns True, the logs of a second endpoint are merged, up to the last block
    that both have read. Raises `ChainUnavailableError` if too few endpoints respond.
    """
    names = list(reversed(reader.names))
    first_range = await _read_from_any(reader, names, contract, start, last_block)
    other_names = [name for name in names if name != first_range.endpoint]
    if not other_names or not await is_incomplete(first_range):
        return first_range
    last_block = first_range.last_block
    second_range = await _read_from_any(reader, other_names, contract, start, last_block)
    return _merge_ranges(first_range, second_range)


async def _read_from_any(
    reader: RpcChainReader, names: Sequence[str], contract: bytes, start: int, last_block: int
) -> LogRange:
    failure = ChainUnavailableError("no endpoint is configured")
    for name in names:
        try:
            return await _read_from(reader, name, contract, start, last_block)
        except ChainUnavailableError as error:
            failure = error
    raise failure


def _merge_ranges(longer: LogRange, shorter: LogRange) -> LogRange:
    """Merge logs from two endpoints, up to the last block of the shorter range."""
    last_block = shorter.last_block
    known_paid_logs = [log for log in longer.paid_logs if log.block_number <= last_block]
    known_refunded_logs = [log for log in longer.refunded_logs if log.block_number <= last_block]
    paid_logs = _merge_logs(known_paid_logs, shorter.paid_logs)
    refunded_logs = _merge_logs(known_refunded_logs, shorter.refunded_logs)
    has_new_logs = len(paid_logs) + len(refunded_logs) > len(known_paid_logs) + len(
        known_refunded_logs
    )
    incomplete_endpoint = longer.endpoint if has_new_logs else None
    return replace(
        shorter,
        paid_logs=paid_logs,
        refunded_logs=refunded_logs,
        incomplete_endpoint=incomplete_endpoint,
    )


def _merge_logs(logs: Iterable[_Log], other_logs: Iterable[_Log]) -> list[_Log]:
    """Merge logs without duplicates. At the same position, the log in `logs` wins."""
    by_position = dict[tuple[bytes, int], _Log]()
    for log in (*logs, *other_logs):
        by_position.setdefault((log.tx_hash, log.log_index), log)
    return list(by_position.values())


async def _read_from(
    reader: RpcChainReader, name: str, contract: bytes, start: int, last_block: int
) -> LogRange:
    paid_logs, refunded_logs = list[PaidLog](), list[RefundedLog]()
    searches, first_block = 0, start
    while True:
        end = min(first_block + reader.get_span(name) - 1, last_block)
        try:
            batch = await reader.search_logs(name, first_block, end, [contract], None)
        except BlockRangeTooLargeError:
            if end == first_block:
                raise
            continue
        paid_logs += batch.logs
        refunded_logs += batch.refunds
        searches, first_block = searches + 1, end + 1
        is_full = (
            len(paid_logs) + len(refunded_logs) >= RANGE_LOGS_MAX or searches == RANGE_SEARCHES_MAX
        )
        if end == last_block or is_full:
            return LogRange(
                endpoint=name,
                last_block=end,
                at=batch.end.at,
                paid_logs=paid_logs,
                refunded_logs=refunded_logs,
            )


def make_lines(
    log_range: LogRange,
    receiver: bytes,
    refund_senders: Sequence[bytes],
    currencies: Mapping[bytes, str],
    decimals: Mapping[str, int],
) -> list[ProviderFileLine]:
    """Convert payments to the receiver, and refunds from our senders, to lines.

    Other logs are ignored. Anyone can refund their own money through the contract, and a payment
    to a different receiver opens a case of a different kind.
    """
    logs: list[tuple[str, PaidLog | RefundedLog, UUID | None]] = [
        *(("payment", log, None) for log in log_range.paid_logs if log.receiver == receiver),
        *(
            ("refund", log, UUID(bytes=log.refund_id))
            for log in log_range.refunded_logs
            if log.sender in refund_senders
        ),
    ]
    lines = list[ProviderFileLine]()
    for number, (type_, log, our_id) in enumerate(logs, 1):
        currency = currencies.get(log.token, f"0x{log.token.hex()}")
        lines.append(
            ProviderFileLine(
                number=number,
                type=type_,
                reference=f"0x{log.tx_hash.hex()}:{log.log_index}",
                our_id=our_id,
                amount=Decimal(log.amount).scaleb(-decimals.get(currency, 0), EXACT),
                currency=currency,
                at=log_range.at,
            )
        )
    return lines


def map_token_symbols(tokens: Sequence[TokenRecord]) -> dict[bytes, str]:
    """Map token addresses to symbols, which are the currencies of their captures."""
    return {
        token.address: token.symbol
        for token in sorted(tokens, key=lambda token: token.symbol)
        if token.address is not None
    }
