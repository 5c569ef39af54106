"""Why a call would fail: the contract's own reason, from the error in which a node wraps it."""

import re

from payintent.domain.evm import CallRevertedError
from payintent.evm.abi import read_reason, readable
from payintent.evm.rpc import RpcErrorAnswer

_CODE = 3
_WORDS = re.compile(r"revert", re.IGNORECASE)
_REASON = re.compile(r"execution reverted:? ?(.*)", re.DOTALL)


def read_revert(error: RpcErrorAnswer) -> CallRevertedError | None:
    """Return an error as the contract's refusal; None where the node itself refuses."""
    if error.code != _CODE and not _WORDS.search(error.message):
        return None
    return CallRevertedError(_reason(error))


def _reason(error: RpcErrorAnswer) -> str:
    """Take the reason from the data, where the node returns any, else from its message."""
    try:
        data = bytes.fromhex(error.data.removeprefix("0x"))
    except ValueError:
        data = b""
    said = _REASON.match(error.message)
    return read_reason(data) or readable(said[1] if said else "")
