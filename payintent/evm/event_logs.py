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
from payintent.evm.port import CallRevertedError, PaidLog, RefundedLog, log_position
from payintent.evm.rpc import RpcErrorResponse

VERSION = 1
_INSTALLED_FOLDER = resources.files("payintent") / "evm" / "compiled"  # in an installed wheel
_SOURCE_FOLDER = Path(__file__).parents[2] / "contracts"
#: Contract versions that accept payments, newest first. Never delete the files of older versions.
_SUPPORTED_VERSIONS = ("PaymentGateway",)
_PUBLIC_ENTRIES = {"pay", "refund", "is_paid", "Paid", "Refunded"}
_REVERT_CODE = 3  # JSON-RPC error code
_REVERT_WORD = re.compile(r"revert", re.IGNORECASE)
_REASON = re.compile(r"execution reverted:? ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """The deployed code of a contract version: the compiled code followed by the immutables."""

    compiled: bytes = field(repr=False)
    immutables: Mapping[str, slice]  # byte ranges after the compiled code

    def read_immutables(self, code: bytes) -> dict[str, bytes] | None:
        """Read the immutables of deployed code; None if it is not this version's code."""
        values = code[len(self.compiled) :]
        length = max((byte_range.stop for byte_range in self.immutables.values()), default=0)
        if not code.startswith(self.compiled) or len(values) != length:
            return None
        return {name: values[byte_range] for name, byte_range in self.immutables.items()}


@cache
def load_compiled_contract(name: str = _SUPPORTED_VERSIONS[0]) -> dict[str, Any]:
    """Read the compiler's output: `abi`, `selectors`, `topics`, bytecode. Do not modify it."""
    folder = _INSTALLED_FOLDER if _INSTALLED_FOLDER.is_dir() else _SOURCE_FOLDER
    return json.loads((folder / f"{name}.json").read_text())


@cache
def list_runtime_codes() -> tuple[RuntimeCode, ...]:
    return tuple(_build_runtime_code(load_compiled_contract(name)) for name in _SUPPORTED_VERSIONS)


def read_immutables(code: bytes) -> dict[str, bytes] | None:
    """Read the immutables of a deployed contract; None if its code is not a supported version."""
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
    """Decode the contract's revert; None if the node itself refused the call."""
    if error.code != _REVERT_CODE and not _REVERT_WORD.search(error.message):
        return None
    try:
        data = bytes.fromhex(error.data.removeprefix("0x"))
    except ValueError:
        data = b""
    text = _REASON.match(error.message)  # used only if the data has no reason
    return CallRevertedError(decode_revert_reason(data) or sanitize_text(text[1] if text else ""))


# The topic of Paid(bytes16,address,address,uint256,address)
_PAID_TOPIC = "0x8c18c424a20459dcea750ef99a2945edb1bf58be222e325bf2db3cf92f2dbb9c"
# The topic of Refunded(bytes16,bytes16,address,uint256,address,address)
_REFUNDED_TOPIC = "0xbcdae6ba37c6f27eab1a048e46be430f61855c18f5c0a6fd260a831c6f873bc4"
PAID, REFUNDED = bytes.fromhex(_PAID_TOPIC[2:]), bytes.fromhex(_REFUNDED_TOPIC[2:])
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
    all_logs = (*logs, *refunds)
    hashes: dict[int, bytes] = {}
    for log in all_logs:
        if log.contract not in contracts or not start <= log.block_number <= end:
            raise ValueError("the log was not requested")
        if hashes.setdefault(log.block_number, log.block_hash) != log.block_hash:
            raise ValueError("the same block has two hashes")
    if len({(log.tx_hash, log.log_index) for log in all_logs}) < len(all_logs):
        raise ValueError("the logs contain duplicates")
    if len({log_position(log) for log in all_logs}) < len(all_logs):
        raise ValueError("two logs have the same position")
    return logs, refunds


def read_matching_logs(responses: Iterable[RpcLog]) -> ContractLogs:
    """Decode a transaction's logs that have the shape of our events, and skip all others.

    Any contract can emit a log that resembles ours in the same transaction. Such a log must not
    make the receipt unreadable.
    """
    return _decode_logs(response for response in responses if _is_contract_event(response))


def read_paid(log: RpcLog) -> PaidLog:
    """Decode a `Paid` log; raises ValueError if it is malformed."""
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
    """Decode a `Refunded` log; raises ValueError if it is malformed."""
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
