"""The documents that ship with the service, in a wheel or in a checkout of the repository."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

#: Names of documents, and their paths in a checkout.
CHECKOUT_PATHS = {
    name: f"docs/{name}"
    for name in ("openapi.yaml", "openapi-pages.yaml", "integrate.md", "glossary.md", "runbook.md")
}


def read_document(name: str) -> str:
    file: Traversable = resources.files("payintent") / "api" / "docs" / "templates" / name
    if not file.is_file():
        file = Path(__file__).parents[3] / CHECKOUT_PATHS[name]
    return file.read_text(encoding="utf-8")


@cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document including page routes; the object is shared and read-only.

    `/openapi.yaml` has no page routes, because API clients do not need methods for them.
    """
    import yaml  # late, because few processes need it

    document, pages = (
        yaml.load(read_document(name), Loader=yaml.CSafeLoader)
        for name in ("openapi.yaml", "openapi-pages.yaml")
    )
    document["tags"] += pages["tags"]
    document["paths"] |= pages["paths"]
    for kind, components in pages["components"].items():
        document["components"][kind] |= components
    return document
