"""The sandbox's wallet, compared with the official library: same sender, same transaction."""

import secrets

import pytest
import rlp
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st

from payintent_sandbox.chains.wallet import sign

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
ADDRESS = bytes.fromhex("5fbdb2315678afecb367f032d93f642f64180aa3")


@settings(max_examples=25, deadline=None)
@given(
    nonce=st.integers(0, 2**20),
    price=st.integers(0, 2**40),
    value=st.integers(0, 2**90),
    data=st.binary(max_size=300),
    chain_id=st.sampled_from([1, 56, 612_055]),
)
def test_a_signed_transaction_is_the_keys_owners_and_says_what_was_signed(
    nonce: int, price: int, value: int, data: bytes, chain_id: int
) -> None:
    key = secrets.randbelow(ORDER - 1) + 1
    owner = Account.from_key(key.to_bytes(32, "big"))

    raw = sign([nonce, price, 300_000, ADDRESS, value, data], chain_id, key)

    assert Account.recover_transaction(raw) == owner.address
    same = owner.sign_transaction(
        {
            "nonce": nonce,
            "gasPrice": price,
            "gas": 300_000,
            "to": ADDRESS,
            "value": value,
            "data": data,
            "chainId": chain_id,
        }
    ).raw_transaction
    said, wanted = rlp.decode(raw), rlp.decode(bytes(same))
    assert said[:6] == wanted[:6]
    assert len(said) == len(wanted) == 9


@pytest.mark.parametrize("key", [1, ORDER - 1])
def test_the_smallest_and_the_largest_key_sign_too(key: int) -> None:
    raw = sign([0, 1, 21_000, ADDRESS, 1, b""], 1, key)
    assert Account.recover_transaction(raw) == Account.from_key(key.to_bytes(32, "big")).address
