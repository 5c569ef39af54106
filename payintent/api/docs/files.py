"""The documents that the service ships: the API document and pages, in a checkout or installed."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

#: What the wheel has beside the templates, and where a checkout keeps it.
_PLACES = {name: f"docs/{name}" for name in ("openapi.yaml", "integrate.md", "glossary.md")}


def read_document(name: str) -> str:
    """Read `openapi.yaml`, `integrate.md` or `glossary.md`."""
    return _place(name).read_text(encoding="utf-8")


@cache
def openapi_document() -> dict[str, Any]:
    """Give the contract as it is written; nobody changes it."""
    return yaml.load(read_document("openapi.yaml"), Loader=yaml.CSafeLoader)


def _place(name: str) -> Traversable:
    packed = resources.files("payintent") / "api" / "docs" / "templates" / name
    return packed if packed.is_file() else Path(__file__).parents[3] / _PLACES[name]
