"""What docs/openapi.yaml has for merchants, to compare SDKs with."""

import re
from collections.abc import Iterator
from typing import Any

from payintent.http.docs.documents import read_openapi_document


def contract() -> dict[str, Any]:
    return read_openapi_document()


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()


def operations() -> Iterator[dict[str, Any]]:
    """Give the operations of the contract that need a merchant's key."""
    for path, methods in contract()["paths"].items():
        for operation in methods.values():
            if isinstance(operation, dict) and {"merchantKey": []} in operation.get("security", []):
                yield operation | {"parts": re.findall(r"\{(\w+)\}", path)}


def fields_of(schema: str) -> set[str]:
    return set(contract()["components"]["schemas"][schema].get("properties", ()))


def object_schemas() -> set[str]:
    """Give the schemas of objects that merchants' operations and webhooks carry."""
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
    return {name for name in names if fields_of(name)}


def resolved(reference: str) -> Any:
    value: Any = contract()
    for part in reference.removeprefix("#/").split("/"):
        value = value[part]
    return value
