"""Deposit addresses recomputed by both SDKs: a changed one is refused."""

import json
import random

import pytest
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from tests.sdks import python_sdk, typescript_sdk

pytestmark = pytest.mark.full


def reference_address(uuid: bytes, factory: bytes, init_code_hash: bytes) -> str:
    salt = uuid.ljust(32, b"\0")
    digest = keccak(b"\xff" + factory + salt + init_code_hash)
    return f"0x{digest[12:].hex()}"


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_the_address_of_every_payment_is_recomputed_and_any_other_is_refused(
    language: str,
) -> None:
    chance = random.Random(7)
    cases: list[list[str]] = []
    expected: list[str] = []
    for _ in range(200):
        facts = [chance.randbytes(size) for size in (16, 20, 32)]
        texts = [f"0x{fact.hex()}" for fact in facts]
        address = reference_address(*facts)
        changed = f"0x{(int(address, 16) ^ 1 << chance.randrange(160)):040x}"
        cases += [[address, *texts], [to_checksum_address(address), *texts], [changed, *texts]]
        expected += [address, address, "WrongDepositAddressError"]
    uuid, factory, code_hash = texts
    for facts in ([uuid[:-1], factory, code_hash], [uuid, "0x", code_hash], [uuid, factory, "x"]):
        cases.append([address, *facts])
        expected.append("ValueError" if language == "python" else "TypeError")
    text = json.dumps(cases)
    if language == "python":
        answer = python_sdk.run_program("use_deposits.py", text=text)
    else:
        answer = typescript_sdk.run_program("use_deposits.mts", text=text)
    assert json.loads(answer) == expected
