"""Verifies deposit addresses; prints the derived address, or the name of the error.

Standard input: as JSON, lists of an address, a uuid, a factory and a hash.
"""

import json
import sys

from payintent_sdk.deposits import derive_deposit_address, verify_deposit_address


def verify(address: str, *facts: str) -> str:
    try:
        verify_deposit_address(address, *facts)
    except ValueError as error:
        return type(error).__name__
    return derive_deposit_address(*facts)


print(json.dumps([verify(*case) for case in json.load(sys.stdin)]))
