"""The part of docs/openapi.yaml for merchants, to compare with the SDKs."""

import re
from collections.abc import Iterator
from typing import Any

from payintent.http.docs.documents import read_openapi_document

#: Operations without a key that the SDKs have, to verify deposit addresses.
_WITHOUT_KEY = {"getChain", "getOnchainSession"}
#: What a page passes on to a wallet; servers do not read it.
_FOR_WALLETS = {
    *("CallArgument", "EthCall", "EventTopics", "NativeBalanceCall", "NativeCurrency"),
    *("PayFunction", "WalletChain", "WalletChecks", "WalletCurrency", "WalletStep"),
}


def contract() -> dict[str, Any]:
    return read_openapi_document()


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()


def operations() -> Iterator[dict[str, Any]]:
    """Return the operations in the contract for a merchant's server."""
    for path, methods in contract()["paths"].items():
        for operation in methods.values():
            if not isinstance(operation, dict):
                continue
            has_key = {"merchantKey": []} in operation.get("security", [])
            if has_key or operation.get("operationId") in _WITHOUT_KEY:
                yield operation | {"parts": re.findall(r"\{(\w+)\}", path)}


def fields_of(schema: str) -> set[str]:
    return set(contract()["components"]["schemas"][schema].get("properties", ()))


def object_schemas() -> set[str]:
    """Return the schemas of objects in merchants' operations and webhooks."""
    found: set[str] = set()
    pending: list[Any] = [*operations(), contract()["webhooks"]]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            name = str(value.get("$ref", ""))
            target = resolved(name) if name else None
            if name.startswith("#/components/schemas/"):
                if name in found:
                    continue
                found.add(name)
            if target is not None:
                pending.append(target)
    names = {name.rpartition("/")[2] for name in found}
    return {name for name in names - _FOR_WALLETS if fields_of(name)}


def resolved(reference: str) -> Any:
    value: Any = contract()
    for part in reference.removeprefix("#/").split("/"):
        value = value[part]
    return value
