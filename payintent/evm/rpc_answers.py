"""Decodes and validates endpoint answers; invalid answers raise ValueError."""

from datetime import UTC, datetime

import msgspec

from payintent.evm.abi import read_hash, read_hex, read_index, read_sized, read_uint
from payintent.evm.event_logs import LogAnswer, read_matching_logs
from payintent.evm.port import Block, ChainTransaction, TransactionReceipt

_ADDRESS = 20
_YEAR_9999_S = 253_370_764_800  # its first second


class _BlockAnswer(msgspec.Struct, frozen=True, rename="camel"):
    number: str
    hash: str
    timestamp: str
    parent_hash: str


class _ReceiptAnswer(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: str
    block_number: str
    block_hash: str
    status: str
    to: str | None
    logs: list[LogAnswer]


class _TxAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    hash: str
    to: str | None
    input: str
    block_number: str | None
    block_hash: str | None = None
    from_: str = msgspec.field(name="from")
    value: str


_BLOCK = msgspec.json.Decoder(_BlockAnswer | None)
_RECEIPT = msgspec.json.Decoder(_ReceiptAnswer | None)
_TX = msgspec.json.Decoder(_TxAnswer | None)
_TEXT = msgspec.json.Decoder(str)
_TEXTS = msgspec.json.Decoder(list[str])


def read_rpc_number(raw: msgspec.Raw) -> int:
    return read_index(_TEXT.decode(raw))


def read_uint256(raw: msgspec.Raw) -> int:
    return read_uint(_TEXT.decode(raw))


def read_tx_hash(raw: msgspec.Raw) -> bytes:
    return read_hash(_TEXT.decode(raw))


def read_addresses(raw: msgspec.Raw) -> list[bytes]:
    return [read_sized(text, _ADDRESS) for text in _TEXTS.decode(raw)]


def read_bytes(raw: msgspec.Raw) -> bytes:
    return read_hex(_TEXT.decode(raw))


def read_block(raw: msgspec.Raw, number: int | None = None) -> Block | None:
    """Decode a block header. The block must have the given `number`, if any."""
    header = _BLOCK.decode(raw)
    if header is None:
        return None
    block = Block(
        number=read_index(header.number),
        hash=read_hash(header.hash),
        at=_to_datetime(read_index(header.timestamp)),
        parent_hash=read_hash(header.parent_hash),
    )
    if number is not None and block.number != number:
        raise ValueError("not the requested block")
    return block


def read_receipt(raw: msgspec.Raw, tx_hash: bytes) -> TransactionReceipt | None:
    """Decode the receipt of this transaction; None if the node does not have it."""
    receipt = _RECEIPT.decode(raw)
    if receipt is None:
        return None
    block_number, block_hash = read_index(receipt.block_number), read_hash(receipt.block_hash)
    status = read_index(receipt.status)
    if read_hash(receipt.transaction_hash) != tx_hash or status > 1:
        raise ValueError("not the receipt of this transaction")
    logs, refunds = read_matching_logs(receipt.logs)
    for log in (*logs, *refunds):
        if (log.tx_hash, log.block_number, log.block_hash) != (tx_hash, block_number, block_hash):
            raise ValueError("a receipt with a log of a different transaction or block")
    return TransactionReceipt(
        tx_hash=tx_hash,
        block_number=block_number,
        block_hash=block_hash,
        status=status,
        to=_address(receipt.to),
        logs=logs,
        refunds=refunds,
    )


def read_tx(raw: msgspec.Raw, tx_hash: bytes) -> ChainTransaction | None:
    """Decode the transaction with this hash; None if the node does not have it."""
    transaction = _TX.decode(raw)
    if transaction is None:
        return None
    if read_hash(transaction.hash) != tx_hash:
        raise ValueError("not the requested transaction")
    return ChainTransaction(
        tx_hash=tx_hash,
        to=_address(transaction.to),
        input=read_hex(transaction.input),
        block_number=None
        if transaction.block_number is None
        else read_index(transaction.block_number),
        block_hash=None if transaction.block_hash is None else read_hash(transaction.block_hash),
        sender=read_sized(transaction.from_, _ADDRESS),
        value=read_uint(transaction.value),
    )


def _address(text: str | None) -> bytes | None:
    return None if text is None else read_sized(text, _ADDRESS)


def _to_datetime(seconds: int) -> datetime:
    if seconds > _YEAR_9999_S:
        raise ValueError("a time beyond the year 9999")
    return datetime.fromtimestamp(seconds, UTC)
