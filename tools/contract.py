"""Write the contracts' ABI and bytecode next to their sources."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "contracts"
EVM_VERSION = "paris"  # supported by all three chains; it has no PUSH0
_SELECTOR_DIGITS = 8


def sources() -> list[Path]:
    """List the contracts, including the test tokens."""
    return sorted(FOLDER.rglob("*.vy"))


def compiled(source: Path) -> str:
    """Compile a contract, and return its JSON file, which is the same on every machine."""
    import vyper  # imported on use, because the import is slow and some tests do not need it
    from vyper.compiler import compile_code
    from vyper.compiler.settings import OptimizationLevel, Settings
    from vyper.utils import keccak256

    formats = ("abi", "bytecode", "bytecode_runtime", "layout", "method_identifiers")
    settings = Settings(evm_version=EVM_VERSION, optimize=OptimizationLevel.GAS)
    out = compile_code(source.read_text(), output_formats=formats, settings=settings)
    description = {
        "name": source.stem,
        "compiler": f"vyper {vyper.__long_version__}",
        "settings": {"evm_version": EVM_VERSION, "optimize": "gas"},
        "selectors": {
            signature: f"0x{selector.removeprefix('0x').zfill(_SELECTOR_DIGITS)}"
            for signature, selector in sorted(out["method_identifiers"].items())
        },
        "topics": {
            part["name"]: f"0x{keccak256(_signature(part).encode()).hex()}"
            for part in out["abi"]
            if part["type"] == "event"
        },
        "abi": out["abi"],
        "bytecode": out["bytecode"],
        "runtime_bytecode": out["bytecode_runtime"],
        # Deployment appends their values to the runtime code.
        "immutables": {
            name: {"offset": place["offset"], "length": place["length"]}
            for name, place in out["layout"].get("code_layout", {}).items()
        },
    }
    return json.dumps(description, indent=1) + "\n"


def main() -> None:
    """Compile all contracts."""
    for source in sources():
        target = source.with_suffix(".json")
        target.write_text(compiled(source))
        print(target.relative_to(FOLDER))  # noqa: T201 - reports the written file


def _signature(part: dict[str, Any]) -> str:
    return f"{part['name']}({','.join(item['type'] for item in part['inputs'])})"


if __name__ == "__main__":
    main()
