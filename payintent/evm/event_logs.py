"""The compiled gateway contract, and decoding of its logs and revert reasons."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from payintent.evm.abi import (
    HASH,
    WORD,
    decode_revert_reason,
    read_hash,
    read_hex,
    read_index,
    read_log_index,
    read_sized,
    sanitize_text,
    split_words,
    to_address,
    to_uint,
    to_uuid,
)
from payintent.evm.port import (
    CallRevertedError,
    ChainLog,
    PaidLog,
    RefundedLog,
    SweepLog,
    TransferLog,
    log_position,
)
from payintent.evm.rpc import RpcErrorResponse

VERSION = 1
_INSTALLED_FOLDER = resources.files("payintent") / "evm" / "compiled"  # in an installed wheel
_SOURCE_FOLDER = Path(__file__).parents[2] / "contracts"
#: Contract versions that accept payments, newest first. Never delete the files of older versions.
_SUPPORTED_VERSIONS = ("PaymentGateway",)
FACTORY, FORWARDER = "DepositFactory", "DepositForwarder"
_PUBLIC_ENTRIES = {"pay", "refund", "is_paid", "Paid", "Refunded"}
_REASON = re.compile(r"execution reverted:? ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """The deployed code of a contract version: the compiled code followed by the immutables."""

    compiled: bytes = field(repr=False)
    immutables: Mapping[str, slice]  # byte ranges after the compiled code

    def read_immutables(self, code: bytes) -> dict[str, bytes] | None:
        """Read the immutables of deployed code; None if the code is not of this version."""
        values = code[len(self.compiled) :]
        length = max((byte_range.stop for byte_range in self.immutables.values()), default=0)
        if not code.startswith(self.compiled) or len(values) != length:
            return None
        return {name: values[byte_range] for name, byte_range in self.immutables.items()}


@cache
def load_compiled_contract(name: str = _SUPPORTED_VERSIONS[0]) -> dict[str, Any]:
    """Read the compiler's output (`abi`, `topics` and so on). The result must not be modified."""
    folder = _INSTALLED_FOLDER if _INSTALLED_FOLDER.is_dir() else _SOURCE_FOLDER
    return json.loads((folder / f"{name}.json").read_text())


@cache
def load_runtime_code(name: str) -> RuntimeCode:
    return _build_runtime_code(load_compiled_contract(name))


def list_runtime_codes() -> tuple[RuntimeCode, ...]:
    return tuple(map(load_runtime_code, _SUPPORTED_VERSIONS))


def read_immutables(code: bytes) -> dict[str, bytes] | None:
    """Read a contract's immutables; None if its code is not that of a supported version."""
    matches = (version.read_immutables(code) for version in list_runtime_codes())
    return next((values for values in matches if values is not None), None)


@cache
def select_public_abi() -> tuple[dict[str, Any], ...]:
    """Return the parts of the ABI that payers and refund senders need."""
    return tuple(
        entry for entry in load_compiled_contract()["abi"] if entry.get("name") in _PUBLIC_ENTRIES
    )


def _build_runtime_code(contract: dict[str, Any]) -> RuntimeCode:
    immutables: dict[str, dict[str, int]] = contract["immutables"]
    return RuntimeCode(
        compiled=bytes.fromhex(contract["runtime_bytecode"].removeprefix("0x")),
        immutables={
            name: slice(value["offset"], value["offset"] + value["length"])
            for name, value in immutables.items()
        },
    )


def read_revert(error: RpcErrorResponse) -> CallRevertedError | None:
    """Decode a revert by the contract; None if the node itself rejected the call."""
    if not error.is_revert:
        return None
    try:
        data = bytes.fromhex(error.data.removeprefix("Reverted ").removeprefix("0x"))
    except ValueError:
        data = b""
    text = _REASON.match(error.message)  # used only if the data has no reason
    return CallRevertedError(decode_revert_reason(data) or sanitize_text(text[1] if text else ""))


# The topic of Paid(bytes16,address,address,uint256,address)
_PAID_TOPIC = "0x8c18c424a20459dcea750ef99a2945edb1bf58be222e325bf2db3cf92f2dbb9c"
# The topic of Refunded(bytes16,bytes16,address,uint256,address,address)
_REFUNDED_TOPIC = "0xbcdae6ba37c6f27eab1a048e46be430f61855c18f5c0a6fd260a831c6f873bc4"
# The topic of Transfer(address,address,uint256)
_TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
# The topic of Swept(bytes16,address,address,uint256)
_SWEPT_TOPIC = "0x1c9e0f93a869fc04ffd89c38579c5bfeada8a5079d33f821b7bf2da5728e5a8f"
# The topic of SweepFailed(bytes16,address,address)
_SWEEP_FAILED_TOPIC = "0x3227e58b2790b300d2eeeae1cd6e46f49a2351c74b994ed2a3816ed45b9b03b2"
SWEPT, SWEEP_FAILED = bytes.fromhex(_SWEPT_TOPIC[2:]), bytes.fromhex(_SWEEP_FAILED_TOPIC[2:])
PAID, REFUNDED = bytes.fromhex(_PAID_TOPIC[2:]), bytes.fromhex(_REFUNDED_TOPIC[2:])
TRANSFER = bytes.fromhex(_TRANSFER_TOPIC[2:])
_ADDRESS = 20

ContractLogs = tuple[tuple[PaidLog, ...], tuple[RefundedLog, ...]]


class RpcLog(msgspec.Struct, frozen=True, rename="camel", gc=False):
    address: str
    topics: list[str]
    data: str
    block_number: str
    block_hash: str
    transaction_hash: str
    log_index: str
    removed: bool = False


_LOGS = msgspec.json.Decoder(list[RpcLog])


def read_logs(
    raw: msgspec.Raw | bytes, contracts: Collection[bytes], start: int, end: int
) -> ContractLogs:
    """Decode the response to a log search, in chain order.

    Raises ValueError for logs that were not requested, and for contradictory logs (duplicates, or
    two hashes for the same block).
    """
    logs, refunds = _decode_logs(_LOGS.decode(raw))
    if any(log.contract not in contracts for log in (*logs, *refunds)):
        raise ValueError("the log was not requested")
    _check_consistency((*logs, *refunds), start, end)
    return logs, refunds


def read_transfers(
    raw: msgspec.Raw | bytes,
    tokens: Collection[bytes],
    recipients: Collection[bytes],
    start: int,
    end: int,
) -> tuple[TransferLog, ...]:
    """Decode a transfer search's response, in chain order. Raises the same errors as `read_logs`.

    A token may emit logs of any shape. Logs that are not transfers of an amount are skipped.
    """
    transfers = [_read_transfer(response) for response in _LOGS.decode(raw)]
    logs = [log for log in transfers if log is not None]
    logs.sort(key=log_position)
    if any(log.token not in tokens or log.recipient not in recipients for log in logs):
        raise ValueError("the log was not requested")
    _check_consistency(logs, start, end)
    return tuple(logs)


def _read_transfer(log: RpcLog) -> TransferLog | None:
    """Decode a Transfer log; None if the layout differs, as it does for NFTs."""
    topics = _read_topics(log)
    data = read_hex(log.data)
    if len(topics) != 3 or topics[0] != TRANSFER or len(data) != WORD:  # noqa: PLR2004
        return None
    return TransferLog(
        token=read_sized(log.address, _ADDRESS),
        sender=to_address(topics[1]),
        recipient=to_address(topics[2]),
        amount=to_uint(data),
        block_number=read_index(log.block_number),
        block_hash=read_hash(log.block_hash),
        tx_hash=read_hash(log.transaction_hash),
        log_index=read_log_index(log.log_index),
    )


def read_sweeps(
    raw: msgspec.Raw | bytes, factories: Collection[bytes], start: int, end: int
) -> tuple[SweepLog, ...]:
    """Decode a sweep search's response, in chain order. Raises the same errors as `read_logs`."""
    logs = sorted(map(_read_sweep, _LOGS.decode(raw)), key=log_position)
    if any(log.factory not in factories for log in logs):
        raise ValueError("the log was not requested")
    _check_consistency(logs, start, end)
    return tuple(logs)


def _read_sweep(log: RpcLog) -> SweepLog:
    event, uuid, token, deposit_address = _read_topics(log)
    if event not in (SWEPT, SWEEP_FAILED):
        raise ValueError("the log has an unknown event")
    succeeded = event == SWEPT
    amounts = split_words(read_hex(log.data), 1 if succeeded else 0)
    return SweepLog(
        factory=read_sized(log.address, _ADDRESS),
        uuid=to_uuid(uuid),
        token=to_address(token),
        deposit_address=to_address(deposit_address),
        amount=to_uint(amounts[0]) if amounts else 0,
        succeeded=succeeded,
        block_number=read_index(log.block_number),
        block_hash=read_hash(log.block_hash),
        tx_hash=read_hash(log.transaction_hash),
        log_index=read_log_index(log.log_index),
    )


def _check_consistency(logs: Collection[ChainLog], start: int, end: int) -> None:
    hashes: dict[int, bytes] = {}
    for log in logs:
        if not start <= log.block_number <= end:
            raise ValueError("the log was not requested")
        if hashes.setdefault(log.block_number, log.block_hash) != log.block_hash:
            raise ValueError("the same block has two hashes")
    if len({(log.tx_hash, log.log_index) for log in logs}) < len(logs):
        raise ValueError("the logs contain duplicates")
    if len({log_position(log) for log in logs}) < len(logs):
        raise ValueError("two logs have the same position")


def read_matching_logs(responses: Iterable[RpcLog]) -> ContractLogs:
    """Decode a transaction's logs that have the shape of our events, and skip all others.

    Any contract can emit a log that resembles ours in the same transaction. Such a log must not
    make the receipt unreadable.
    """
    return _decode_logs(response for response in responses if _is_contract_event(response))


def read_paid(log: RpcLog) -> PaidLog:
    """Decode a `Paid` log; raise ValueError if it is malformed."""
    _, uuid, payer, token = _read_topics(log)
    amount, receiver = split_words(read_hex(log.data), 2)
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


def read_refunded(log: RpcLog) -> RefundedLog:
    """Decode a `Refunded` log; raise ValueError if it is malformed."""
    _, uuid, refund_id, token = _read_topics(log)
    amount, to, sender = split_words(read_hex(log.data), 3)
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


def _decode_logs(responses: Iterable[RpcLog]) -> ContractLogs:
    logs: list[PaidLog] = []
    refunds: list[RefundedLog] = []
    for response in responses:
        event = response.topics[0].lower() if response.topics else ""
        if event == _PAID_TOPIC:
            logs.append(read_paid(response))
        elif event == _REFUNDED_TOPIC:
            refunds.append(read_refunded(response))
        else:
            raise ValueError("the log has an unknown event")
    return tuple(sorted(logs, key=log_position)), tuple(sorted(refunds, key=log_position))


def _is_contract_event(log: RpcLog) -> bool:
    try:
        _decode_logs((log,))
    except ValueError:
        return False
    return True


def _read_topics(log: RpcLog) -> list[bytes]:
    if log.removed:
        raise ValueError("a reorganization removed the log")
    return [read_sized(topic, HASH) for topic in log.topics]
