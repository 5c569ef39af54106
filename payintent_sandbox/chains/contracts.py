"""The compiled contracts, with their deployment code and call data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGED = Path(__file__).parents[2] / "payintent" / "evm" / "compiled"  # in a wheel
_CHECKOUT = Path(__file__).parents[2] / "contracts"
FOLDER = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT

GATEWAY = "PaymentGateway"
DEPOSIT_FACTORY = "DepositFactory"
DEPOSIT_FORWARDER = "DepositForwarder"
USDT_LIKE_TOKEN = "test_tokens/UsdtLikeToken"  # noqa: S105 - a contract
PLAIN_TOKEN = "test_tokens/PlainToken"  # noqa: S105
HOSTILE_TOKEN = "test_tokens/HostileToken"  # noqa: S105
HOSTILE_ACCOUNT = "test_tokens/HostileAccount"


@dataclass(frozen=True, slots=True)
class CompiledContract:
    """A compiled contract; its bytecode is in hex with the prefix 0x."""

    name: str
    compiler: str
    selectors: dict[str, str]
    topics: dict[str, str]
    abi: list[dict[str, Any]] = field(repr=False)
    bytecode: str = field(repr=False)
    runtime_bytecode: str = field(repr=False)

    def selector(self, function: str) -> str:
        """Return the first four bytes of a call, as 0x and eight digits."""
        signatures = self.selectors.items()
        [selector] = [digits for text, digits in signatures if text.startswith(f"{function}(")]
        return selector

    def creation_code(self, *arguments: Any) -> str:
        """Return the data of the deployment transaction, with the constructor's arguments."""
        constructors = [entry for entry in self.abi if entry["type"] == "constructor"]
        return self.bytecode + _encode(constructors[0] if constructors else {}, arguments)

    def call_data(self, function: str, *arguments: Any) -> str:
        """Return call data. Arguments must match their ABI types; addresses are hex strings."""
        [entry] = [entry for entry in self.abi if entry.get("name") == function]
        return self.selector(function) + _encode(entry, arguments)


@cache
def load(name: str) -> CompiledContract:
    """Read a contract by its path in the contracts folder."""
    compiled = json.loads((FOLDER / f"{name}.json").read_text())
    return CompiledContract(
        name=compiled["name"],
        compiler=compiled["compiler"],
        selectors=compiled["selectors"],
        topics=compiled["topics"],
        abi=compiled["abi"],
        bytecode=compiled["bytecode"],
        runtime_bytecode=compiled["runtime_bytecode"],
    )


def _encode(entry: dict[str, Any], arguments: Sequence[Any]) -> str:
    from eth_abi.abi import encode  # imported on use, because most commands do not call contracts

    return encode([argument["type"] for argument in entry.get("inputs", [])], arguments).hex()
