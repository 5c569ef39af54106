"""The page about migrations: its examples pass the lint and run, and its table is complete."""

import shutil
from pathlib import Path

import pytest

from payintent.db import migrations_runner
from tests.docs.parse_pages import blocks, page, rows, section
from tools import migrations

_PAGE = page("docs/contribute/add-a-migration.md")


def _write_examples(folder: Path, language: str = "sql") -> list[str]:
    """Write the page's examples as migrations after the initial schema; return their names."""
    names: list[str] = []
    for number, text in enumerate(blocks(_PAGE, language), start=2):
        names.append(f"{number:04}_example")
        (folder / f"{names[-1]}.sql").write_text(text)
        title = text.partition("\n")[0]
        assert title == migrations.CONCURRENTLY or title.startswith(("-- lint", f"-- {number:04}_"))
    return names


def test_the_examples_pass_the_lint(tmp_path: Path) -> None:
    assert len(_write_examples(tmp_path)) > 5
    assert list(migrations.check(migrations.migrations(tmp_path))) == []


def test_the_example_of_an_exemption_passes_the_lint_only_with_its_comment(tmp_path: Path) -> None:
    [name] = _write_examples(tmp_path, "text")
    path = tmp_path / f"{name}.sql"
    assert list(migrations.check([path])) == []
    path.write_text(path.read_text().partition("\n")[2])
    assert [problem.rule for problem in migrations.check([path])] == ["check"]


async def test_the_examples_run(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(migrations_runner.FOLDER / "0001_initial.sql", tmp_path)
    names = _write_examples(tmp_path)
    monkeypatch.setattr(migrations_runner, "FOLDER", tmp_path)
    assert await migrations_runner.migrate(empty_url) == ["0001_initial", *names]


def test_the_table_lists_every_rule_of_the_lint() -> None:
    listed_rules = {cells[0].strip("`") for cells in rows(section(_PAGE, "## Avoid long locks"))}
    assert listed_rules == set(migrations.RULES) - {"allow"}
