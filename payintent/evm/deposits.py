"""Deposit addresses: CREATE2 addresses of minimal proxies (EIP-1167) for a forwarder.

`contracts/DepositFactory.vy` deploys the proxies. An address is known before its proxy exists.
"""

from payintent.evm.abi import WORD, keccak

_ADDRESS = 20
_PROXY_START = bytes.fromhex("602d3d8160093d39f3363d3d373d3d3d363d73")
_PROXY_END = bytes.fromhex("5af43d82803e903d91602b57fd5bf3")


def init_code_hash(forwarder: bytes) -> bytes:
    """Hash the code that deploys a proxy for this forwarder."""
    return keccak(_PROXY_START + forwarder + _PROXY_END)


def derive_deposit_address(factory: bytes, init_hash: bytes, uuid: bytes) -> bytes:
    """Return the deposit address for a payment's uuid; see `init_code_hash`."""
    salt = uuid.ljust(WORD, b"\0")
    return keccak(b"\xff" + factory + salt + init_hash)[-_ADDRESS:]
