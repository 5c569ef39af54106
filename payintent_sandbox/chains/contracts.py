"""The contracts as they were compiled: what to deploy, and by which words to speak to it."""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGED = Path(__file__).parents[2] / "payintent" / "evm" / "compiled"  # in a wheel
_CHECKOUT = Path(__file__).parents[2] / "contracts"
FOLDER = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT

GATEWAY = "PaymentGateway"
USDT_LIKE_TOKEN = "test_tokens/UsdtLikeToken"  # noqa: S105 - a contract
PLAIN_TOKEN = "test_tokens/PlainToken"  # noqa: S105
HOSTILE_TOKEN = "test_tokens/HostileToken"  # noqa: S105
HOSTILE_ACCOUNT = "test_tokens/HostileAccount"


@dataclass(frozen=True, slots=True)
class CompiledContract:
    """One compiled contract; byte code as hex digits with 0x."""

    name: str
    compiler: str
    selectors: dict[str, str]
    topics: dict[str, str]
    abi: list[dict[str, Any]] = field(repr=False)
    bytecode: str = field(repr=False)
    runtime_bytecode: str = field(repr=False)

    def selector(self, function: str) -> str:
        """Give the first four bytes of a call, as 0x and eight digits."""
        [found] = [one for text, one in self.selectors.items() if text.startswith(f"{function}(")]
        return found


@cache
def load(name: str) -> CompiledContract:
    """Read a contract by its place in the contracts' folder."""
    told = json.loads((FOLDER / f"{name}.json").read_text())
    return CompiledContract(
        name=told["name"],
        compiler=told["compiler"],
        selectors=told["selectors"],
        topics=told["topics"],
        abi=told["abi"],
        bytecode=told["bytecode"],
        runtime_bytecode=told["runtime_bytecode"],
    )


def encode(*values: int | str | list[int]) -> str:
    """Encode arguments as hex digits: words (addresses are numbers), texts, lists of words."""
    heads: list[str] = []
    tail = ""
    for value in values:
        if isinstance(value, int):
            heads.append(_word(value))
            continue
        heads.append(_word(32 * len(values) + len(tail) // 2))
        tail += (
            _text(value) if isinstance(value, str) else "".join(map(_word, [len(value), *value]))
        )
    return "".join(heads) + tail


def _word(value: int) -> str:
    return value.to_bytes(32, "big").hex()


def _text(value: str) -> str:
    data = value.encode()
    return _word(len(data)) + data.ljust(-(-len(data) // 32) * 32, b"\0").hex()
