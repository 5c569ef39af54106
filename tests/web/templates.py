"""List and record templates, to check that the tests render each template."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def templates_of(rendering: ModuleType) -> set[str]:
    """List the templates next to a module that renders them."""
    assert rendering.__file__ is not None
    return {path.name for path in Path(rendering.__file__).with_name("templates").glob("*.html")}


def record_templates(rendering: ModuleType, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that collects the templates that `rendering` uses."""
    rendered_names: set[str] = set()
    environment = rendering._templates
    get_template = environment.get_template

    def record_template(name: str, *arguments: Any) -> Any:
        rendered_names.add(name)
        return get_template(name, *arguments)

    monkeypatch.setattr(environment, "get_template", record_template)
    return rendered_names
