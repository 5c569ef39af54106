"""The gateway contract as it was compiled: its ABI, for whoever calls it from a browser."""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

VERSION = 1
_PACKED = resources.files("payintent") / "chain" / "compiled"  # in a wheel
_CHECKOUT = Path(__file__).parents[2] / "contracts" / "chain"
_SHOWN = {"pay", "refund", "is_paid", "Paid", "Refunded"}


@cache
def compiled() -> dict[str, Any]:
    """Read what was compiled: `abi`, `selectors`, `topics`, byte code; nobody changes it."""
    folder = _PACKED if _PACKED.is_dir() else _CHECKOUT
    return json.loads((folder / "PaymentGateway.json").read_text())


@cache
def public_abi() -> tuple[dict[str, Any], ...]:
    """Give the parts of the ABI that payers and refunders need."""
    return tuple(one for one in compiled()["abi"] if one.get("name") in _SHOWN)
