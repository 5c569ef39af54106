"""Print the calls of the Python SDK with their parameters, and its classes with their fields."""

import inspect
import json
from dataclasses import fields, is_dataclass

from payintent_sdk import AsyncClient, Client, calls, events, models, onchain


def main() -> None:
    operations = {
        name: list(inspect.signature(function).parameters)
        for name, function in vars(calls).items()
        if inspect.isfunction(function) and function.__module__ == calls.__name__ and name[0] != "_"
    }
    classes = {
        name: [field.name for field in fields(kind)]
        for module in (models, events, onchain)
        for name, kind in vars(module).items()
        if is_dataclass(kind) and isinstance(kind, type)
    }
    print(json.dumps({"operations": operations, "classes": classes, "methods": methods()}))


def methods() -> list[list[str]]:
    """Return the methods of both clients, as `payments.create`."""
    return [
        sorted(
            f"{name}.{method}"
            for name, resource in vars(client("sk_x", "http://127.0.0.1:9")).items()
            if name[0] != "_"
            for method in dir(resource)
            if method[0] != "_"
        )
        for client in (Client, AsyncClient)
    ]


main()
