"""Decode a contract's revert reason from the JSON-RPC error that a node returns for a call."""

import re

from payintent.domain.evm import CallRevertedError
from payintent.evm.abi import decode_revert_reason, readable
from payintent.evm.rpc import RpcErrorAnswer

_CODE = 3
_WORDS = re.compile(r"revert", re.IGNORECASE)
_REASON = re.compile(r"execution reverted:? ?(.*)", re.DOTALL)


def read_revert(error: RpcErrorAnswer) -> CallRevertedError | None:
    """Decode the contract's revert; None if the node itself refuses the call."""
    if error.code != _CODE and not _WORDS.search(error.message):
        return None
    try:
        data = bytes.fromhex(error.data.removeprefix("0x"))
    except ValueError:
        data = b""
    text = _REASON.match(error.message)  # used only if the data has no reason
    return CallRevertedError(decode_revert_reason(data) or readable(text[1] if text else ""))
