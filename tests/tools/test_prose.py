"""The prose check counts marker words only in prose, and fails above a limit."""

from pathlib import Path

import pytest

from tools import prose

PLAIN = "If the token is revoked, the command fails. " * 30
DIALECT = "What waits is shown where somebody who looks has none of the others. " * 30


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_plain_english_passes_and_the_dialect_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = write(tmp_path, "plain.md", PLAIN)
    dialect = write(tmp_path, "dialect.md", DIALECT)
    assert prose.check("plain", [plain])
    assert not prose.check("dialect", [dialect])
    printed = capsys.readouterr().out
    assert "dialect: 390 words" in printed
    for name in ("where", "what, who", "one, other", "if, when"):
        assert f"  {name}: " in printed


def test_a_dialect_file_fails_even_next_to_a_plain_file(tmp_path: Path) -> None:
    write(tmp_path, "plain.md", PLAIN)
    write(tmp_path, "dialect.md", DIALECT)
    assert not prose.check("both", [tmp_path])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fenced.md", f"{PLAIN}\n```python\n{DIALECT}\n```\n"),
        ("inline.md", f"{PLAIN} `what` `who` [link](where/what/who.md)"),
        ("strings.py", f'"""{PLAIN}"""\nvalue = "{DIALECT}"\n# noqa: what who where\n'),
        ("page.html", f"<p>{PLAIN}</p><script>{DIALECT}</script>{{# {DIALECT} #}}"),
    ],
)
def test_code_is_not_counted_as_prose(tmp_path: Path, name: str, text: str) -> None:
    measurement = prose.measure(write(tmp_path, name, text))
    assert measurement.failures() == []
    assert measurement.markers["if, when"] == 30


@pytest.mark.parametrize(
    "text",
    [
        f'"""{DIALECT}"""\n',
        f'def function():\n    """{DIALECT}"""\n',
        "".join(f"# {sentence}.\n" for sentence in DIALECT.split(". ")),
    ],
)
def test_docstrings_and_comments_are_prose(tmp_path: Path, text: str) -> None:
    assert prose.measure(write(tmp_path, "module.py", text)).failures()


def test_test_names_are_prose(tmp_path: Path) -> None:
    text = "def test_what_waits_is_shown_where_others_look() -> None: ...\n"
    measurement = prose.measure(write(tmp_path, "test_module.py", text))
    assert measurement.words == 7
    assert measurement.markers == {"what, who": 1, "where": 1, "one, other": 1, "if, when": 0}
    helper = "def what_waits_is_shown() -> None: ...\n"
    assert prose.measure(write(tmp_path, "helper.py", helper)).words == 0


def test_bindings_that_are_bare_participles_are_counted(tmp_path: Path) -> None:
    text = "def read(wanted, *, payments):\n    found = wanted\n    return found, payments\n"
    assert prose.measure(write(tmp_path, "module.py", text)).participles == 2
    most = "\n".join("found = 1" for _ in range(prose.PARTICIPLES_MAX + 1))
    [failure] = prose.measure(write(tmp_path, "many.py", most)).failures()
    assert failure == "participles: 101 bindings, maximum 100"


def test_generated_and_foreign_files_are_skipped(tmp_path: Path) -> None:
    for folder in ("node_modules", ".venv", "__pycache__"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "text.md", DIALECT)
    write(tmp_path, "picture.svg", DIALECT)
    page = write(tmp_path, "page.md", PLAIN)
    assert list(prose.list_files([tmp_path])) == [page]
