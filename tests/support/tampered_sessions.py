"""Deposit sessions as a compromised service would return them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from payintent.evm.deposits import derive_deposit_address, init_code_hash

ATTACKER = "0x" + "ab" * 20
View = dict[str, Any]


def tamper(view: View) -> dict[str, View]:
    """Return copies of a session, each with a different change, keyed by the name of the change."""
    copies = {name: deepcopy(view) for name in _CHANGES}
    for name, change in _CHANGES.items():
        change(copies[name])
        assert copies[name] != view
    return copies


def _relink(view: View, to: str | None = None, amount: str | None = None) -> None:
    view["links"]["eip681"] = (
        f"ethereum:{view['token']['address']}@{view['chain']['network_id']}/transfer"
        f"?address={to or view['deposit_address']}"
        f"&uint256={amount or view['remaining']['amount_smallest_unit']}"
    )


def _replace_address(view: View) -> None:
    view["deposit_address"] = ATTACKER
    _relink(view)


def _use_other_factory(view: View) -> None:
    """Replace the factory, and change all data that depends on it consistently."""
    attacker, uuid = bytes.fromhex(ATTACKER[2:]), bytes.fromhex(view["pay_uuid"][2:])
    code_hash = init_code_hash(attacker)
    view |= dict.fromkeys(("factory_address", "forwarder_address", "receiver"), ATTACKER)
    view["init_code_hash"] = f"0x{code_hash.hex()}"
    view["deposit_address"] = f"0x{derive_deposit_address(attacker, code_hash, uuid).hex()}"
    _relink(view)


def _move(view: View) -> None:
    view["chain"]["network_id"] = 1
    _relink(view)


_CHANGES: dict[str, Callable[[View], object]] = {
    "address": _replace_address,
    "all facts": _use_other_factory,
    "receiver": lambda view: view.update(receiver=ATTACKER),
    "uuid": lambda view: view.update(pay_uuid="0x" + "0" * 32),
    "network": _move,
    "link": lambda view: _relink(view, to=ATTACKER),
    "amount in the link": lambda view: _relink(view, amount="1"),
    "link without an amount": lambda view: view.pop("remaining"),
    "address is a number": lambda view: view.update(deposit_address=1),
}
