"""Recomputes the deposit address of a payment, so that no server has to be trusted with it.

A deposit address depends only on the installation's deposit factory, on the hash of the code that
the factory deploys, and on the payment's `pay_uuid`. Store the first two when you go live, from
`GET /v1/chains/{slug}`. Then a changed address is noticed even if the installation is compromised:

    verify_deposit_address(session["deposit_address"], session["pay_uuid"], FACTORY, INIT_CODE_HASH)
"""

import re

__all__ = ["WrongDepositAddressError", "derive_deposit_address", "verify_deposit_address"]

_RATE = 136  # bytes per block of Keccak-256
_LANES_MASK = (1 << 64) - 1
_ROUNDS = 24


class WrongDepositAddressError(ValueError):
    """The address is not the deposit address of this payment. Do not send money there."""


def derive_deposit_address(pay_uuid: str, factory_address: str, init_code_hash: str) -> str:
    """Return a payment's deposit address, in lower case.

    The arguments are hex with the prefix `0x`, of 16, 20 and 32 bytes; raises ValueError otherwise.
    """
    salt = _decode("pay_uuid", pay_uuid, 16) + bytes(16)
    factory = _decode("factory_address", factory_address, 20)
    code_hash = _decode("init_code_hash", init_code_hash, 32)
    digest = _keccak256(b"\xff" + factory + salt + code_hash)
    return f"0x{digest[12:].hex()}"


def verify_deposit_address(
    deposit_address: str, pay_uuid: str, factory_address: str, init_code_hash: str
) -> None:
    """Raise `WrongDepositAddressError` unless the factory derives this address for the payment."""
    expected = derive_deposit_address(pay_uuid, factory_address, init_code_hash)
    if deposit_address.lower() != expected:
        raise WrongDepositAddressError(
            f"{deposit_address!r} is not the deposit address of {pay_uuid}, which is {expected}"
        )


def _decode(name: str, text: str, size: int) -> bytes:
    if not re.fullmatch(f"0x[0-9a-fA-F]{{{2 * size}}}", text):
        raise ValueError(f"{name} must be 0x and {2 * size} hex digits")
    return bytes.fromhex(text[2:])


def _keccak256(data: bytes) -> bytes:
    """Hash with Keccak-256 as Ethereum does; its padding differs from the SHA3-256 of hashlib."""
    padding = bytearray(_RATE - len(data) % _RATE)
    padding[0] = 1
    padding[-1] |= 0x80
    padded = data + padding
    state = [0] * 25
    for start in range(0, len(padded), _RATE):
        for lane in range(_RATE // 8):
            offset = start + 8 * lane
            state[lane] ^= int.from_bytes(padded[offset : offset + 8], "little")
        state = _permute(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


def _permute(state: list[int]) -> list[int]:
    """Apply Keccak-f[1600]; lane (x, y) is `state[x + 5 * y]`."""
    register = 1
    for _ in range(_ROUNDS):
        # theta
        columns = [
            state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20]
            for x in range(5)
        ]
        effects = [columns[x - 1] ^ _rotate(columns[(x + 1) % 5], 1) for x in range(5)]
        state = [lane ^ effects[index % 5] for index, lane in enumerate(state)]
        # rho and pi
        x, y, lane = 1, 0, state[1]
        for step in range(_ROUNDS):
            x, y = y, (2 * x + 3 * y) % 5
            rotated = _rotate(lane, (step + 1) * (step + 2) // 2)
            lane, state[x + 5 * y] = state[x + 5 * y], rotated
        # chi
        for row in range(0, 25, 5):
            lanes = state[row : row + 5]
            for x in range(5):
                state[row + x] = lanes[x] ^ (~lanes[(x + 1) % 5] & _LANES_MASK & lanes[(x + 2) % 5])
        # iota
        for bit in range(7):
            register = (register << 1 ^ (register >> 7) * 0x71) % 256
            if register & 2:
                state[0] ^= 1 << ((1 << bit) - 1)
    return state


def _rotate(lane: int, bits: int) -> int:
    bits %= 64
    return ((lane << bits) | (lane >> (64 - bits))) & _LANES_MASK
