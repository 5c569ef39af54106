"""The scaling page: its tables match the command's output, and its commands run."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from bench.scale import Cost, Host, kept_table, rate_table
from payintent.runtime.settings import Settings
from payintent_sandbox.postgres import Postgres, find_binaries
from tests.docs.parse_pages import blocks, page
from tests.docs.run_pages import read_blocks
from tests.support.databases import Databases
from tests.support.haproxy import adapt_shipped_configuration
from tests.support.terminal import Terminal
from tests.support.timeouts import PATIENCE_S
from tests.support.tools import tool

_PAGE = page("docs/operate/scale.md")
_INDENTED = re.sub(r"^ {3}", "", _PAGE, flags=re.MULTILINE)
_WORDS = re.compile(r'"([^"]*)"|(\S+)')


def _commands(which: str) -> list[list[str]]:
    """Return the words of the page's commands, without redirections."""
    lines = [
        line
        for block in read_blocks(_INDENTED)
        if block.text.startswith(f"# example: {which} installation\n")
        for line in block.text.splitlines()[1:]
    ]
    return [
        [quoted or plain for quoted, plain in _WORDS.findall(line.partition(" > ")[0])][1:]
        for line in lines
    ]


def test_the_tables_match_the_output_of_the_command() -> None:
    for table in (rate_table, kept_table):
        assert "\n".join(table(Cost(), Host())) in _PAGE


def test_the_commands_for_a_second_installation_run_in_order(
    settings: Settings, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = Terminal(settings, monkeypatch)
    [export] = _commands("first")
    exported = first.run(*export)
    assert (exported.status, exported.err) == (0, "")
    (tmp_path / "payintent.yaml").write_text(exported.out)

    url = databases.take()
    second = Terminal(settings.model_copy(update={"database_url": url}), monkeypatch)
    monkeypatch.setenv("PAYINTENT_KEY_MARK", "b1")
    results = [second.run(*words) for words in _commands("second")]
    assert [(result.status, result.err) for result in results] == [(0, "")] * len(results)
    assert results[1].out == "no differences\n"
    for result in results[2:]:
        assert re.search(r"\bsk_live_b1\w{6}_", result.out), result.out
    databases.give_back(url)


def test_haproxy_accepts_the_two_blocks_for_a_third_installation(tmp_path: Path) -> None:
    route, backend = blocks(_INDENTED, "text")
    (tmp_path / "haproxy.cfg").write_text(adapt_shipped_configuration(route, backend, tmp_path))
    [check] = [block for block in blocks(_INDENTED, "sh") if block.startswith("haproxy ")]
    words = check.partition(" && ")[0].split()
    assert words == ["haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg"]
    result = subprocess.run(
        [tool("haproxy"), "-c", "-f", str(tmp_path / "haproxy.cfg")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "use_backend c1" in (tmp_path / "haproxy.cfg").read_text()


@pytest.mark.full
def test_a_new_database_server_replicates_the_old_server_and_takes_over(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = Postgres(tmp_path / "old" / "data", durable=False)
    new = Postgres(tmp_path / "new" / "data", durable=False)
    [copy] = [block for block in blocks(_PAGE, "sh") if "pg_basebackup" in block]
    lag_query, promote = blocks(_PAGE, "sql")
    try:
        url = old.start()
        asyncio.run(_execute(url, "CREATE TABLE kept AS SELECT 1 AS number"))
        _run_block(copy, url, tmp_path / "new" / "data")
        shutil.copy(tmp_path / "old" / "postgres.password", tmp_path / "new")
        new.start()
        asyncio.run(_execute(url, "INSERT INTO kept VALUES (2)"))
        asyncio.run(_wait_until_zero(url, lag_query))
        old.stop()
        asyncio.run(_execute(new.url(), promote))
        asyncio.run(_execute(new.url(), "INSERT INTO kept VALUES (3)"))
        assert asyncio.run(_execute(new.url(), "SELECT number FROM kept ORDER BY 1")) == [1, 2, 3]
    finally:
        new.stop()
        old.stop()


def _run_block(block: str, url: str, data: Path) -> None:
    """Run a block, then change the owner of the folder to PostgreSQL's user."""
    parts = urlsplit(url)
    subprocess.run(
        ["/bin/sh", "-ec", block],
        env={
            "PATH": f"{find_binaries()}:{os.environ['PATH']}",
            "PGHOST": str(parts.hostname),
            "PGPORT": str(parts.port),
            "PGUSER": str(parts.username),
            "PGPASSWORD": str(parts.password),
            "DATA": str(data),
        },
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    owner = (data.parents[1] / "old" / "data").stat()
    for path in [data, *data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


async def _execute(url: str, statement: str) -> list[object]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(statement)
    await connection.close()
    return [row[0] for row in rows]


async def _wait_until_zero(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    async with asyncio.timeout(PATIENCE_S):
        while [row["behind"] for row in await connection.fetch(statement)] != [0]:
            await asyncio.sleep(0.1)
    await connection.close()
