"""The sandbox's wallet signs transactions with the key, as EIP-155 specifies."""

import secrets

import pytest
import rlp
from hypothesis import given, settings
from hypothesis import strategies as st

from payintent_sandbox.chains.wallet import sign

pytestmark = pytest.mark.full

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
ADDRESS = bytes.fromhex("5fbdb2315678afecb367f032d93f642f64180aa3")
#: The transaction of EIP-155's example, which is signed with a key of repeated 0x46 bytes.
EXAMPLE = {
    "nonce": 9,
    "gasPrice": 20 * 10**9,
    "gas": 21_000,
    "to": bytes.fromhex(20 * "35"),
    "value": 10**18,
    "data": "0x",
    "chainId": 1,
}
EXAMPLE_SIGNED = (
    "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a0"
    "28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276"
    "a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"
)


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """Import the signing library before Hypothesis runs, because it changes the recursion limit."""
    sign(EXAMPLE, f"0x{32 * '46'}")


def test_the_signature_matches_the_example_of_eip_155() -> None:
    assert sign(EXAMPLE, f"0x{32 * '46'}") == EXAMPLE_SIGNED


@settings(max_examples=25, deadline=None)
@given(
    nonce=st.integers(0, 2**20),
    price=st.integers(0, 2**40),
    value=st.integers(0, 2**90),
    data=st.binary(max_size=300),
    chain_id=st.sampled_from([1, 56, 612_055]),
)
def test_a_signed_transaction_has_the_right_sender_and_content(
    nonce: int, price: int, value: int, data: bytes, chain_id: int
) -> None:
    from eth_account import Account

    key = f"0x{secrets.randbelow(ORDER - 1) + 1:064x}"
    transaction = {
        "nonce": nonce,
        "gasPrice": price,
        "gas": 300_000,
        "to": ADDRESS,
        "value": value,
        "data": f"0x{data.hex()}",
        "chainId": chain_id,
    }

    raw = sign(transaction, key)

    assert Account.recover_transaction(raw) == Account.from_key(key).address
    *fields, v, _, _ = rlp.decode(bytes.fromhex(raw[2:]))
    numbers = [int.from_bytes(fields[index]) for index in (0, 1, 2, 4)]
    assert numbers == [nonce, price, 300_000, value]
    assert (fields[3], fields[5]) == (ADDRESS, data)
    assert (int.from_bytes(v) - 35) // 2 == chain_id


@pytest.mark.parametrize("key", [1, ORDER - 1])
def test_the_smallest_and_the_largest_key_can_sign(key: int) -> None:
    from eth_account import Account

    raw = sign(EXAMPLE, f"0x{key:064x}")
    assert Account.recover_transaction(raw) == Account.from_key(f"0x{key:064x}").address
