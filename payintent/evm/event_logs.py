"""The contract's logs, from JSON to values: anything not of their exact shape is refused."""

from collections.abc import Collection, Iterable

import msgspec

from payintent.domain.evm import PaidLog, RefundedLog, log_position
from payintent.evm.abi import to_address, to_uint, to_uuid, words
from payintent.evm.hex_values import (
    HASH,
    read_hash,
    read_hex,
    read_index,
    read_log_index,
    read_sized,
)

# The topic of Paid(bytes16,address,address,uint256,address)
_PAID_TEXT = "0x8c18c424a20459dcea750ef99a2945edb1bf58be222e325bf2db3cf92f2dbb9c"
# The topic of Refunded(bytes16,bytes16,address,uint256,address,address)
_REFUNDED_TEXT = "0xbcdae6ba37c6f27eab1a048e46be430f61855c18f5c0a6fd260a831c6f873bc4"
PAID, REFUNDED = bytes.fromhex(_PAID_TEXT[2:]), bytes.fromhex(_REFUNDED_TEXT[2:])
_ADDRESS = 20

ContractLogs = tuple[tuple[PaidLog, ...], tuple[RefundedLog, ...]]


class LogAnswer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    address: str
    topics: list[str]
    data: str
    block_number: str
    block_hash: str
    transaction_hash: str
    log_index: str
    removed: bool = False


_LOGS = msgspec.json.Decoder(list[LogAnswer])


def read_logs(
    raw: msgspec.Raw | bytes, contracts: Collection[bytes], start: int, end: int
) -> ContractLogs:
    """Read the answer to a search, in the chain's order; refuse logs that were not requested.

    The same identity twice and two hashes of one block are refused too: no chain has such logs.
    """
    logs, refunds = _read(_LOGS.decode(raw))
    found = (*logs, *refunds)
    hashes: dict[int, bytes] = {}
    for log in found:
        if log.contract not in contracts or not start <= log.block_number <= end:
            raise ValueError("a log that was not asked for")
        if hashes.setdefault(log.block_number, log.block_hash) != log.block_hash:
            raise ValueError("two hashes of one block")
    if len({(log.tx_hash, log.log_index) for log in found}) < len(found):
        raise ValueError("a log twice")
    if len({log_position(log) for log in found}) < len(found):
        raise ValueError("two logs at one place")
    return logs, refunds


def read_matching_logs(answers: Iterable[LogAnswer]) -> ContractLogs:
    """Read the logs of a transaction that have the shape of ours, and skip all others.

    Any contract can write a log that only begins like ours, in the same transaction; it must not
    make the receipt unreadable.
    """
    return _read(answer for answer in answers if _has_our_shape(answer))


def read_paid(log: LogAnswer) -> PaidLog:
    """Decode a `Paid` log; ValueError where it has another shape."""
    _, uuid, payer, token = _topics(log)
    amount, receiver = words(read_hex(log.data), 2)
    return PaidLog(
        contract=read_sized(log.address, _ADDRESS),
        uuid=to_uuid(uuid),
        payer=to_address(payer),
        token=to_address(token),
        amount=to_uint(amount),
        receiver=to_address(receiver),
        block_number=read_index(log.block_number),
        block_hash=read_hash(log.block_hash),
        tx_hash=read_hash(log.transaction_hash),
        log_index=read_log_index(log.log_index),
    )


def read_refunded(log: LogAnswer) -> RefundedLog:
    """Decode a `Refunded` log; ValueError where it has another shape."""
    _, uuid, refund_id, token = _topics(log)
    amount, to, sender = words(read_hex(log.data), 3)
    return RefundedLog(
        contract=read_sized(log.address, _ADDRESS),
        uuid=to_uuid(uuid),
        refund_id=to_uuid(refund_id),
        token=to_address(token),
        amount=to_uint(amount),
        to=to_address(to),
        sender=to_address(sender),
        block_number=read_index(log.block_number),
        block_hash=read_hash(log.block_hash),
        tx_hash=read_hash(log.transaction_hash),
        log_index=read_log_index(log.log_index),
    )


def _read(answers: Iterable[LogAnswer]) -> ContractLogs:
    logs: list[PaidLog] = []
    refunds: list[RefundedLog] = []
    for answer in answers:
        first = _first_topic(answer)
        if first == _PAID_TEXT:
            logs.append(read_paid(answer))
        elif first == _REFUNDED_TEXT:
            refunds.append(read_refunded(answer))
        else:
            raise ValueError("a log of another event")
    return tuple(sorted(logs, key=log_position)), tuple(sorted(refunds, key=log_position))


def _has_our_shape(log: LogAnswer) -> bool:
    try:
        _read((log,))
    except ValueError:
        return False
    return True


def _topics(log: LogAnswer) -> list[bytes]:
    if log.removed:
        raise ValueError("a log that was taken back")
    return [read_sized(topic, HASH) for topic in log.topics]


def _first_topic(log: LogAnswer) -> str:
    return log.topics[0].lower() if log.topics else ""
