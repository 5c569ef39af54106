"""A database that is written to moves to another server, or stays whole where it is."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest

from payintent.cli.cell_move import NEW_ENV, OLD_ENV
from payintent.domain.errors import RefusedError
from payintent.storage import migrations_runner
from payintent.storage.cell_move import fence, open_move
from payintent.storage.cell_switch import Hooks, Switched, finish
from payintent.storage.driver import GONE, connect
from payintent_sandbox.postgres import Postgres
from tests.support.databases import at_database, make_passwords_cheap
from tests.support.memory_folder import server_folder
from tests.support.patience import PATIENCE_S

_WRITERS = 4
_BEFORE = 2_000  # rows of a table that is larger than what is compared of it
_LOOK_S = 0.01
#: Where it is there, cells move from it to a newer version.
_DEBIANS = Path("/usr/lib/postgresql/15/bin")


@dataclass(frozen=True)
class Servers:
    """Two servers with a migrated database each; only the first one's log can be followed."""

    old: str
    new: str


@dataclass(frozen=True)
class Pair:
    """A cell's database at the old server, and an empty one at the new."""

    cell: int
    old: str
    new: str

    @property
    def both(self) -> str:
        """Give the address that leads to whichever of them takes writes."""
        old, new = urlsplit(self.old), urlsplit(self.new)
        login = f"{old.username}:{old.password}"
        return f"postgresql://{login}@127.0.0.1:{old.port},127.0.0.1:{new.port}{old.path}?sslmode=disable"


@pytest.fixture(scope="module")
def servers() -> Generator[Servers]:
    older = _DEBIANS if _DEBIANS.exists() else None
    with server_folder() as folder:
        made = [
            Postgres(folder / "old" / "data", bin_dir=older, durable=False),
            Postgres(folder / "new" / "data", durable=False),
        ]
        made[0].settings["wal_level"] = "logical"
        try:
            for name in ("old", "new"):
                (folder / name).mkdir(mode=0o711)
            first = made[0].start()
            password = urlsplit(first).password or ""
            (folder / "new" / "postgres.password").write_text(password)
            urls = [f"{url}?sslmode=disable" for url in (first, made[1].start())]
            for url in urls:
                asyncio.run(_prepare(url, password))
            yield Servers(*urls)
        finally:
            for server in made:
                server.stop()


async def _prepare(url: str, password: str) -> None:
    """Migrate the database that cells are copies of, and let connections cost little."""
    connection = await asyncpg.connect(url)
    await make_passwords_cheap(connection, password)
    await connection.close()
    await migrations_runner.migrate(url)


_cells = iter(range(1, 100))


@pytest.fixture
async def pair(servers: Servers) -> AsyncIterator[Pair]:
    """Make a cell at the old server, with rows in it."""
    name, cell = f"moved_{uuid4().hex[:8]}", next(_cells)
    urls: list[str] = []
    for url in (servers.old, servers.new):
        admin = await asyncpg.connect(at_database(url, "postgres"))
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE payintent STRATEGY file_copy')
        await admin.close()
        urls.append(at_database(url, name))
    found = Pair(cell, *urls)
    await _execute(
        found.old,
        f"""
        INSERT INTO installation (id, pepper_mark, cell)
            VALUES (gen_random_uuid(), '\\x01', {cell});
        INSERT INTO audit (id, who, why, action, details)
            SELECT gen_random_uuid(), 'somebody', 'before', 'merchant.add', '{{}}'
            FROM generate_series(1, {_BEFORE});
        INSERT INTO buyer_attempt (address_digest, merchant_id) VALUES ('\\x01', 1)
        """,
    )
    yield found
    with suppress(RefusedError):
        async with open_move(cell, found.old, found.new) as move:
            await move.unsubscribe()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _value(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def _follow(pair: Pair) -> None:
    """Begin the move, and wait until all tables follow."""
    async with open_move(pair.cell, pair.old, pair.new) as move:
        await move.begin()
        async with asyncio.timeout(PATIENCE_S):
            while not (await move.progress()).follows:
                await asyncio.sleep(_LOOK_S)


async def _nothing() -> None:
    await asyncio.sleep(0)


async def _finish(
    pair: Pair, hooks: Hooks | None = None, stop_max_s: float = 30.0, undo_at: str = ""
) -> Switched:
    async with open_move(pair.cell, pair.old, pair.new) as move:
        hooks = hooks or Hooks(_nothing, _nothing, _nothing)
        urls = (pair.old, undo_at or pair.new)
        return await finish(move, urls, hooks, "somebody", "larger", stop_max_s=stop_max_s)


async def _write(pair: Pair, written: list[UUID], stop: asyncio.Event) -> None:
    """Write row after row at whichever server takes writes, and note what was acknowledged."""
    connection = None
    while not stop.is_set():
        row_id = uuid4()
        try:
            connection = connection or await connect(pair.both)
            await connection.execute(
                "INSERT INTO audit (id, who, why, action, details) "
                "VALUES ($1, 'somebody', 'during', 'merchant.add', '{}')",
                row_id,
            )
        except (*GONE, ConnectionError):
            if connection is not None:
                connection.terminate()
            connection = None
            await asyncio.sleep(_LOOK_S)
        else:
            written.append(row_id)
    if connection is not None:
        await connection.close()


async def test_what_is_written_while_a_cell_moves_is_at_the_new_server(pair: Pair) -> None:
    written: list[UUID] = []
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as work:
        for _ in range(_WRITERS):
            work.create_task(_write(pair, written, stop))
        await _follow(pair)
        done = await _finish(pair)
        moved = len(written)
        async with asyncio.timeout(PATIENCE_S):
            while len(written) < moved + _WRITERS:  # they write on, at the new server
                await asyncio.sleep(_LOOK_S)
        stop.set()
    print(f"{moved} rows, writes stopped for {done.stopped_s:.2f} s")
    new = await asyncpg.connect(pair.new)
    found = await new.fetch("SELECT id FROM audit WHERE why = 'during'")
    await new.close()
    assert {row["id"] for row in found} >= set(written)
    assert await _value(pair.new, "SELECT count(*) FROM audit WHERE why = 'before'") == _BEFORE
    assert await _value(pair.new, "SELECT count(*) FROM audit WHERE action = 'cell.move'") >= 1  # type: ignore[operator]
    assert await _value(pair.new, "SELECT count(*) FROM buyer_attempt") == 1
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await _execute(pair.old, "DELETE FROM audit")
    for catalog in (
        "pg_publication",
        "pg_replication_slots WHERE slot_name LIKE 'payintent_move_%'",
    ):
        assert await _value(pair.old, f"SELECT count(*) FROM {catalog}") == 0


async def test_triggers_do_not_act_again_and_sequences_go_on(pair: Pair) -> None:
    sequence = "pg_get_serial_sequence('ledger_entry', 'entry_number')"
    await _value(pair.old, f"SELECT setval({sequence}, 4711)")
    version = await _value(pair.old, "SELECT number FROM configuration_version")
    await _follow(pair)
    await _finish(pair)
    assert await _value(pair.new, "SELECT number FROM configuration_version") == version
    assert await _value(pair.new, f"SELECT nextval({sequence})") == 4712


@pytest.mark.parametrize("undo_at", ["", "postgresql://a:b@127.0.0.1:1/away?sslmode=disable"])
async def test_a_difference_is_named_and_the_old_server_goes_on(pair: Pair, undo_at: str) -> None:
    """Also where the new server does not answer any more when it is undone."""
    await _follow(pair)
    tampering = await asyncpg.connect(pair.new)
    await tampering.execute("SET default_transaction_read_only = off")
    await tampering.execute("UPDATE installation SET pepper_mark = '\\x02'")
    await tampering.close()
    resumed: list[str] = []

    async def resume() -> None:
        resumed.append("resumed")
        await asyncio.sleep(0)

    with pytest.raises(RefusedError, match="something else in: installation"):
        await _finish(pair, Hooks(_nothing, _nothing, resume), undo_at=undo_at)
    assert resumed == ["resumed"]
    await _execute(
        pair.old, "INSERT INTO buyer_attempt (address_digest, merchant_id) VALUES ('\\x02', 1)"
    )
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await _execute(pair.new, "DELETE FROM buyer_attempt")
    async with open_move(pair.cell, pair.old, pair.new) as move:
        await move.abort()
    assert await _value(pair.new, "SELECT count(*) FROM audit") == 0
    await _follow(pair)  # and can begin again
    assert (await _finish(pair)).tables


async def test_a_stop_that_takes_too_long_is_undone(pair: Pair) -> None:
    await _follow(pair)

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RefusedError, match="took too long"):
        await _finish(pair, Hooks(hang, _nothing, _nothing), stop_max_s=0.1)
    await _execute(pair.old, "DELETE FROM buyer_attempt")
    await _finish(pair)


async def test_a_switch_that_fails_is_made_up_for_by_another_run(pair: Pair) -> None:
    await _follow(pair)

    async def fail() -> None:
        raise OSError("no pooler")

    with pytest.raises(Exception, match="a server went away"):
        await _finish(pair, Hooks(_nothing, fail, _nothing))
    async with open_move(pair.cell, pair.old, pair.new) as move:
        with pytest.raises(RefusedError, match="is finished"):
            await move.abort()
    await _finish(pair)
    assert await _value(pair.new, "SELECT count(*) FROM pg_subscription") == 0


@pytest.mark.parametrize("hook", ["pause", "switch"])
async def test_a_finish_that_was_killed_is_run_again(pair: Pair, hook: str, tmp_path: Path) -> None:
    await _follow(pair)
    await _kill_finish(pair, hook, tmp_path / "reached")
    if hook == "pause":  # nothing has happened yet but that poolers may hold their clients
        await _execute(pair.old, "DELETE FROM buyer_attempt")
    await _finish(pair)
    await _require_moved(pair)


@pytest.mark.parametrize("still_follows", [True, False])
async def test_a_finish_that_was_killed_between_its_steps_is_run_again(
    pair: Pair, *, still_follows: bool
) -> None:
    await _follow(pair)
    async with open_move(pair.cell, pair.old, pair.new) as move:
        old, _ = await move.facts()
        await fence(move.old, old["database"])
        if not still_follows:
            await move.stop_following()
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await _execute(pair.old, "DELETE FROM buyer_attempt")
    assert (await _finish(pair)).tables
    await _require_moved(pair)


async def test_a_finish_that_was_killed_can_be_given_up(pair: Pair) -> None:
    await _follow(pair)
    async with open_move(pair.cell, pair.old, pair.new) as move:
        old, _ = await move.facts()
        await fence(move.old, old["database"])
        await move.stop_following()
        await move.abort()
    await _execute(pair.old, "DELETE FROM buyer_attempt")
    assert await _value(pair.new, "SELECT count(*) FROM audit") == 0


async def _kill_finish(pair: Pair, hook: str, reached: Path) -> None:
    """Kill the command while it waits for a command of the poolers."""
    waiting = f"touch {reached}; while [ -e /proc/$PPID ]; do sleep 0.05; done"
    hooks = dict.fromkeys(("pause", "switch", "resume"), "true") | {
        hook: shlex.join(["sh", "-c", waiting])
    }
    words = [word for name, command in hooks.items() for word in (f"--{name}", command)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "payintent", "cell-move", "finish", str(pair.cell), *words),
        *("--why", "larger", "--stop-max-s", str(PATIENCE_S)),
        env={**os.environ, OLD_ENV: pair.old, NEW_ENV: pair.new},
    )
    async with asyncio.timeout(PATIENCE_S):
        while not reached.exists():
            await asyncio.sleep(_LOOK_S)
    process.kill()
    await process.wait()


async def _require_moved(pair: Pair) -> None:
    await _execute(pair.new, "DELETE FROM buyer_attempt")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await _execute(pair.old, "DELETE FROM buyer_attempt")
    assert await _value(pair.new, "SELECT count(*) FROM audit WHERE why = 'before'") == _BEFORE
    assert await _value(pair.new, "SELECT count(*) FROM pg_subscription") == 0


async def test_servers_between_which_nothing_can_move_are_refused(pair: Pair) -> None:
    async def begin(cell: int, old: str, new: str) -> str:
        with pytest.raises(RefusedError) as refused:
            async with open_move(cell, old, new) as move:
                await move.begin()
        return refused.value.message

    assert "wal_level is replica at the old server" in await begin(pair.cell, pair.new, pair.old)
    assert "one server" in await begin(pair.cell, pair.old, at_database(pair.old, "payintent"))
    assert "not that of cell 0" in await begin(0, pair.old, pair.new)
    await _execute(
        pair.old, "CREATE ROLE payintent_moved; GRANT SELECT ON payment TO payintent_moved"
    )
    try:
        assert "SELECT on payment to payintent_moved" in await begin(pair.cell, pair.old, pair.new)
    finally:
        await _execute(pair.old, "DROP OWNED BY payintent_moved; DROP ROLE payintent_moved")
    await _execute(pair.new, "ALTER TABLE payment ENABLE ALWAYS TRIGGER payment_arrow")
    assert "act twice: payment_arrow" in await begin(pair.cell, pair.old, pair.new)
    await _execute(
        pair.new, "INSERT INTO installation (id, pepper_mark) VALUES (gen_random_uuid(), '\\x01')"
    )
    assert "in use" in await begin(pair.cell, pair.old, pair.new)
