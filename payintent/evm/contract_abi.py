"""The compiled gateway contract: its ABI for browsers, and its code to verify deployments."""

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
#: The contract versions that accept payments, newest first; keep the files of older versions.
_SUPPORTED = ("PaymentGateway",)
_PUBLIC = {"pay", "refund", "is_paid", "Paid", "Refunded"}


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """The deployed code of a contract version: the compiled code, then the immutables."""

    compiled: bytes = field(repr=False)
    immutables: Mapping[str, slice]  # byte ranges after the compiled code

    def read_immutables(self, code: bytes) -> dict[str, bytes] | None:
        """Read the immutables of deployed code; None if it is not this version's code."""
        values = code[len(self.compiled) :]
        length = max((byte_range.stop for byte_range in self.immutables.values()), default=0)
        if not code.startswith(self.compiled) or len(values) != length:
            return None
        return {name: values[byte_range] for name, byte_range in self.immutables.items()}


@cache
def compiled_contract(name: str = _SUPPORTED[0]) -> dict[str, Any]:
    """Read the compiler's output: `abi`, `selectors`, `topics`, bytecode. Do not modify it."""
    folder = _PACKED if _PACKED.is_dir() else _CHECKOUT
    return json.loads((folder / f"{name}.json").read_text())


@cache
def runtime_codes() -> tuple[RuntimeCode, ...]:
    return tuple(_runtime_code(compiled_contract(name)) for name in _SUPPORTED)


def read_immutables(code: bytes) -> dict[str, bytes] | None:
    """Read the immutables of a deployed contract; None if its code is not a supported version."""
    matches = (version.read_immutables(code) for version in runtime_codes())
    return next((values for values in matches if values is not None), None)


@cache
def public_abi() -> tuple[dict[str, Any], ...]:
    """Return the parts of the ABI that payers and refund senders need."""
    return tuple(entry for entry in compiled_contract()["abi"] if entry.get("name") in _PUBLIC)


def _runtime_code(contract: dict[str, Any]) -> RuntimeCode:
    immutables: dict[str, dict[str, int]] = contract["immutables"]
    return RuntimeCode(
        compiled=bytes.fromhex(contract["runtime_bytecode"].removeprefix("0x")),
        immutables={
            name: slice(value["offset"], value["offset"] + value["length"])
            for name, value in immutables.items()
        },
    )
