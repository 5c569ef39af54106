"""Derive and verify deposit addresses; print each address, or the name of the error.

Standard input contains JSON: lists of a uuid, a factory and a hash, and lists of a session and
stored chains.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from payintent_sdk.decoding import decode
from payintent_sdk.deposits import derive_deposit_address, load_chain, verify_deposit_address
from payintent_sdk.onchain import OnchainSession


def call(function: Callable[[], str]) -> str:
    try:
        return function()
    except ValueError as error:
        return type(error).__name__


def verify(session: Any, chains: list[Any]) -> str:
    stored = [load_chain(json.dumps(chain)) for chain in chains]
    return verify_deposit_address(decode(OnchainSession, session), *stored)


derivations, sessions = json.load(sys.stdin)
derived = [call(lambda fact=fact: derive_deposit_address(*fact)) for fact in derivations]
verified = [call(lambda session=session: verify(*session)) for session in sessions]
print(json.dumps([derived, verified]))
