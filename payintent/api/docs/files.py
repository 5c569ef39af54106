"""The documents that the service ships: the API document and pages, in a checkout or a wheel."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

#: Where the wheel has each document, and where a checkout of the repository has it.
_NAMES = ("openapi.yaml", "integrate.md", "glossary.md", "runbook.md")
_PLACES = {name: f"docs/{name}" for name in _NAMES}


def read_document(name: str) -> str:
    """Read `openapi.yaml`, `integrate.md`, `glossary.md` or `runbook.md`."""
    return _place(name).read_text(encoding="utf-8")


@cache
def openapi_document() -> dict[str, Any]:
    """Return the API document as parsed YAML; it is shared, so read-only."""
    import yaml  # where pages are read: few processes ever need it

    return yaml.load(read_document("openapi.yaml"), Loader=yaml.CSafeLoader)


def _place(name: str) -> Traversable:
    packed = resources.files("payintent") / "api" / "docs" / "templates" / name
    return packed if packed.is_file() else Path(__file__).parents[3] / _PLACES[name]
