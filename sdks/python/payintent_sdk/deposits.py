"""Verifies deposit addresses against a factory that you have stored.

A deposit address depends only on the deposit factory, on the hash of the code that the factory
deploys, and on the session's `pay_uuid`. When you go live, store the response from
`GET /v1/chains/{slug}`, so that a compromised installation cannot redirect deposits unnoticed:

    chain = load_chain(Path("bsc.json").read_text())
    verify_deposit_address(client.onchain.get_session(session_id), chain)
"""

import json
import re

from payintent_sdk.decoding import decode
from payintent_sdk.errors import PayintentError, UnreadableAnswerError
from payintent_sdk.onchain import Chain, DepositFactory, OnchainSession

__all__ = [
    "WrongDepositAddressError",
    "derive_deposit_address",
    "load_chain",
    "verify_deposit_address",
]

_RATE = 136  # bytes per block of Keccak-256
_LANES_MASK = (1 << 64) - 1
_ROUNDS = 24


class WrongDepositAddressError(PayintentError, ValueError):
    """A stored factory does not derive this address for the session. Do not send money there."""


def load_chain(text: str | bytes) -> Chain:
    """Decode a stored response from `GET /v1/chains/{slug}`.

    Raises `UnreadableAnswerError` if it is not such a response.
    """
    try:
        return decode(Chain, json.loads(text))
    except ValueError as error:
        raise UnreadableAnswerError(f"cannot read Chain: {error}") from error


def verify_deposit_address(session: OnchainSession, *chains: Chain) -> str:
    """Return the session's deposit address if the factory of a stored chain derives it.

    Pass chains that you have stored, not chains that you have just read. After the operator has
    replaced a factory, pass the old and the new chain. The receiver and the EIP-681 link must match
    too. Raises `WrongDepositAddressError` if anything differs, and `ValueError` if the session
    is not a deposit session or has a malformed `pay_uuid`.
    """
    address = session.deposit_address
    if address is None:
        raise ValueError(f"{session.id} is not a deposit session")
    network_id = session.chain.network_id
    factories = [chain.deposits for chain in chains if chain.network_id == network_id]
    if not any(_matches(session, factory) for factory in factories if factory is not None):
        raise WrongDepositAddressError(
            f"{address} is not a deposit address of a stored factory for {session.pay_uuid} on"
            f" network {network_id}, or the receiver differs. Do not send money there."
        )
    link, expected = session.links.eip681, _build_eip681_url(session)
    if link is not None and link.lower() != expected.lower():
        raise WrongDepositAddressError(f"the EIP-681 link is {link} instead of {expected}")
    return address


def _matches(session: OnchainSession, factory: DepositFactory) -> bool:
    expected = derive_deposit_address(
        session.pay_uuid, factory.factory_address, factory.init_code_hash
    )
    is_receiver = str(session.receiver).lower() == factory.receiver.lower()
    return is_receiver and str(session.deposit_address).lower() == expected


def _build_eip681_url(session: OnchainSession) -> str:
    amount = session.remaining.amount_smallest_unit if session.remaining else ""
    return (
        f"ethereum:{session.token.address}@{session.chain.network_id}/transfer"
        f"?address={session.deposit_address}&uint256={amount}"
    )


def derive_deposit_address(pay_uuid: str, factory_address: str, init_code_hash: str) -> str:
    """Return a session's deposit address, in lower case.

    The arguments must be 16, 20 and 32 bytes, respectively, as hex with the prefix `0x`. Raises
    `ValueError` otherwise.
    """
    salt = _decode("pay_uuid", pay_uuid, 16) + bytes(16)
    factory = _decode("factory_address", factory_address, 20)
    code_hash = _decode("init_code_hash", init_code_hash, 32)
    digest = _keccak256(b"\xff" + factory + salt + code_hash)
    return f"0x{digest[12:].hex()}"


def _decode(name: str, text: str, size: int) -> bytes:
    if not re.fullmatch(f"0x[0-9a-fA-F]{{{2 * size}}}", str(text)):
        raise ValueError(f"{name} must be 0x followed by {2 * size} hex digits")
    return bytes.fromhex(text[2:])


def _keccak256(data: bytes) -> bytes:
    """Hash with Ethereum's Keccak-256; its padding differs from that of hashlib's SHA3-256."""
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
