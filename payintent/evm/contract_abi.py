"""The gateway contract as compiled: its ABI for browsers, its code to compare with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

VERSION = 1
_PACKED = resources.files("payintent") / "evm" / "compiled"  # in a wheel
_CHECKOUT = Path(__file__).parents[2] / "contracts"
#: The versions that payments are taken through, newest first; the file of an older one stays.
_SUPPORTED = ("PaymentGateway",)
_SHOWN = {"pay", "refund", "is_paid", "Paid", "Refunded"}


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """The code of one version as deployed: the compiled code, then the immutables."""

    compiled: bytes = field(repr=False)
    immutables: Mapping[str, slice]  # byte ranges after the compiled code

    def read_immutables(self, code: bytes) -> dict[str, bytes] | None:
        """Read the immutables of deployed code; None where it is other code than this version's."""
        values = code[len(self.compiled) :]
        length = max((place.stop for place in self.immutables.values()), default=0)
        if not code.startswith(self.compiled) or len(values) != length:
            return None
        return {name: values[place] for name, place in self.immutables.items()}


@cache
def compiled_contract(name: str = _SUPPORTED[0]) -> dict[str, Any]:
    """Read what was compiled: `abi`, `selectors`, `topics`, byte code; shared, so read-only."""
    folder = _PACKED if _PACKED.is_dir() else _CHECKOUT
    return json.loads((folder / f"{name}.json").read_text())


@cache
def runtime_codes() -> tuple[RuntimeCode, ...]:
    return tuple(_runtime_code(compiled_contract(name)) for name in _SUPPORTED)


def read_immutables(code: bytes) -> dict[str, bytes] | None:
    """Read the immutables of a deployed contract; None where it is no supported version of ours."""
    found = (version.read_immutables(code) for version in runtime_codes())
    return next((values for values in found if values is not None), None)


@cache
def public_abi() -> tuple[dict[str, Any], ...]:
    """Return the parts of the ABI that payers and refund senders need."""
    return tuple(entry for entry in compiled_contract()["abi"] if entry.get("name") in _SHOWN)


def _runtime_code(described: dict[str, Any]) -> RuntimeCode:
    places: dict[str, dict[str, int]] = described["immutables"]
    return RuntimeCode(
        compiled=bytes.fromhex(described["runtime_bytecode"].removeprefix("0x")),
        immutables={
            name: slice(place["offset"], place["offset"] + place["length"])
            for name, place in places.items()
        },
    )
