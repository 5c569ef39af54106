"""The part of docs/openapi.yaml that the SDKs must implement."""

import re
from collections.abc import Iterator
from typing import Any

from payintent.http.docs.documents import read_openapi_document

#: Operations without a key that the SDKs need to verify deposit addresses.
_WITHOUT_KEY = {"getChain", "getOnchainSession"}
#: Schemas for wallets, which servers do not read.
_FOR_WALLETS = {
    *("CallArgument", "EthCall", "EventTopics", "NativeBalanceCall", "NativeCurrency"),
    *("PayFunction", "WalletChain", "WalletChecks", "WalletCurrency", "WalletStep"),
}


def read_contract() -> dict[str, Any]:
    return read_openapi_document()


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()


def list_operations() -> Iterator[dict[str, Any]]:
    """Yield the operations for merchants' servers."""
    for path, methods in read_contract()["paths"].items():
        for operation in methods.values():
            if not isinstance(operation, dict):
                continue
            has_key = {"merchantKey": []} in operation.get("security", [])
            if has_key or operation.get("operationId") in _WITHOUT_KEY:
                yield operation | {"parts": re.findall(r"\{(\w+)\}", path)}


def fields_of(schema: str) -> set[str]:
    return set(read_contract()["components"]["schemas"][schema].get("properties", ()))


def list_object_schemas() -> set[str]:
    """Return the names of the object schemas in these operations and in webhooks."""
    references: set[str] = set()
    pending: list[Any] = [*list_operations(), read_contract()["webhooks"]]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            name = str(value.get("$ref", ""))
            target = resolve(name) if name else None
            if name.startswith("#/components/schemas/"):
                if name in references:
                    continue
                references.add(name)
            if target is not None:
                pending.append(target)
    names = {name.rpartition("/")[2] for name in references}
    return {name for name in names - _FOR_WALLETS if fields_of(name)}


def resolve(reference: str) -> Any:
    value: Any = read_contract()
    for part in reference.removeprefix("#/").split("/"):
        value = value[part]
    return value
