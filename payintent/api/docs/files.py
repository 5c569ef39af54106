"""The documents that the service ships: the API document and pages, in a checkout or a wheel."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

#: Where the wheel has each document, and where a checkout of the repository has it.
_NAMES = ("openapi.yaml", "openapi-pages.yaml", "integrate.md", "glossary.md", "runbook.md")
_PLACES = {name: f"docs/{name}" for name in _NAMES}


def read_document(name: str) -> str:
    return _place(name).read_text(encoding="utf-8")


@cache
def openapi_document() -> dict[str, Any]:
    """Return the API document with the routes that are no API; it is shared, so read-only.

    `/openapi.yaml` leaves these routes out: no client needs a method for a picture.
    """
    import yaml  # where pages are read: few processes ever need it

    document, pages = (
        yaml.load(read_document(name), Loader=yaml.CSafeLoader)
        for name in ("openapi.yaml", "openapi-pages.yaml")
    )
    document["tags"] += pages["tags"]
    document["paths"] |= pages["paths"]
    for kind, components in pages["components"].items():
        document["components"][kind] |= components
    return document


def _place(name: str) -> Traversable:
    packed = resources.files("payintent") / "api" / "docs" / "templates" / name
    return packed if packed.is_file() else Path(__file__).parents[3] / _PLACES[name]
