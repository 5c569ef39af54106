"""A wallet for trying the sandbox: signs transactions with a key, as a buyer's own wallet would.

The arithmetic is plain and takes as long as the key's bits want: it is for development chains only.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

from payintent.evm.keccak import keccak
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc

GAS_MAX = 300_000

# secp256k1: the curve y^2 = x^3 + 7 over the field of P, its base point, and that point's order.
_P = 2**256 - 2**32 - 977
_N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_BASE = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
_PARITY = 35  # of EIP-155: the last number is this, twice the chain's, and the parity
_ONE_BYTE_MAX = 0x7F
_SHORT_MAX = 55
_TEXT, _LIST = 0x80, 0xC0

_Point = tuple[int, int] | None  # None is the one at infinity


@dataclass(frozen=True, slots=True)
class Wallet:
    """One account on one chain, with its key; the key never goes to the chain."""

    chain: DevChainRpc
    address: str
    private_key: str = field(repr=False)

    async def send(self, to: str, data: str, value: int = 0) -> dict[str, Any]:
        """Send a transaction and give its receipt, whether it succeeded or not (ChainError)."""
        tx = [
            await self.chain.number("eth_getTransactionCount", self.address, "pending"),
            2 * await self.chain.number("eth_gasPrice"),
            GAS_MAX,
            bytes.fromhex(to[2:]),
            value,
            bytes.fromhex(data[2:]),
        ]
        raw = sign(tx, await self.chain.number("eth_chainId"), int(self.private_key, 16))
        return await self.chain.receipt(
            await self.chain.ask("eth_sendRawTransaction", f"0x{raw.hex()}")
        )

    async def ask(self, to: str, data: str) -> int:
        """Ask a contract for a number (ChainError)."""
        told = await self.chain.ask("eth_call", {"to": to, "data": data}, "latest")
        if told == "0x":
            raise DevChainError(f"no contract is at {to}")
        return int(told, 16)


def sign(tx: list[int | bytes], chain_id: int, key: int) -> bytes:
    """Sign a transaction for one chain (EIP-155) and give its bytes.

    `tx` is nonce, gas price, gas, receiver, value and data.
    """
    digest = keccak(_rlp([*tx, chain_id, 0, 0]))
    r, s, parity = _sign(int.from_bytes(digest, "big"), key)
    return _rlp([*tx, _PARITY + 2 * chain_id + parity, r, s])


def _sign(digest: int, key: int) -> tuple[int, int, int]:
    """Sign a digest; gives r, the lower of both s, and the parity of the point behind r."""
    while True:
        chance = secrets.randbelow(_N - 1) + 1
        point = _multiply(_BASE, chance)
        assert point is not None  # noqa: S101 - a multiple below the order is never at infinity
        r = point[0]
        s = pow(chance, -1, _N) * (digest + r * key) % _N
        if 0 < r < _N and s:
            break
    parity = point[1] & 1
    return (r, s, parity) if s <= _N // 2 else (r, _N - s, 1 - parity)


def _multiply(point: _Point, times: int) -> _Point:
    total: _Point = None
    while times:
        if times & 1:
            total = _add(total, point)
        point = _add(point, point)
        times >>= 1
    return total


def _add(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    rise, run = (3 * x1 * x1, 2 * y1) if one == other else (y2 - y1, x2 - x1)
    slope = rise * pow(run, -1, _P) % _P
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _rlp(items: list[int | bytes]) -> bytes:
    """Encode a flat list of numbers and bytes, as Ethereum writes transactions."""
    body = b"".join(_rlp_item(one) for one in items)
    return _rlp_head(_LIST, len(body)) + body


def _rlp_item(item: int | bytes) -> bytes:
    data = item.to_bytes((item.bit_length() + 7) // 8, "big") if isinstance(item, int) else item
    if len(data) == 1 and data[0] <= _ONE_BYTE_MAX:
        return data
    return _rlp_head(_TEXT, len(data)) + data


def _rlp_head(kind: int, length: int) -> bytes:
    if length <= _SHORT_MAX:
        return bytes([kind + length])
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([kind + _SHORT_MAX + len(size)]) + size
