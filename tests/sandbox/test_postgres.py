"""The embedded PostgreSQL, with real servers on real folders."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from payintent_sandbox.postgres import Postgres, PostgresError, _launcher
from tests.support.timeouts import PATIENCE_S

pytestmark = pytest.mark.full

_PARENT = """
import sys, threading
from pathlib import Path
from payintent_sandbox.postgres import Postgres
server = Postgres(Path(sys.argv[1]), durable=False)
starter = threading.Thread(target=server.start)  # the server must survive the end of the thread
starter.start()
starter.join()
print(server.url(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose data was created once. Tests copy it, because initdb is slow."""
    var = tmp_path_factory.mktemp("prepared")
    server = Postgres(var / "data", durable=False)
    server.start()
    server.stop()
    return var


@pytest.fixture
def data_dir(prepared_folder: Path, tmp_path: Path) -> Path:
    var = tmp_path / "var"
    subprocess.run(["cp", "-a", str(prepared_folder), str(var)], check=True)
    return var / "data"


@pytest.fixture
def server(data_dir: Path) -> Iterator[Postgres]:
    server = Postgres(data_dir, durable=False)
    yield server
    server.stop()


def query_value(url: str, query: str) -> object:
    async def answer() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(answer())


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "postmaster.pid").read_text().split()[0])


def wait_until_ended(pid: int) -> None:
    """Wait until a process that is not our child has ended, even if it is a zombie."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if not Path(f"/proc/{pid}/cmdline").read_bytes():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


@contextlib.contextmanager
def another_process(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            yield parent, parent.stdout.readline().strip()
        finally:
            parent.kill()


def test_a_first_start_creates_a_private_password_protected_server(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "var" / "data", durable=True)
    try:
        url = server.start()

        assert query_value(url, "SELECT 1") == 1
        assert (
            query_value(url, "SELECT current_database() || ' ' || current_user")
            == "payintent payintent"
        )
        assert query_value(url, "SHOW fsync") == "on"
        assert query_value(url, "SHOW ssl") == "off"
        assert query_value(url, "SHOW unix_socket_directories") == ""
        assert query_value(url, "SHOW listen_addresses") == "127.0.0.1"
        assert query_value(url, "SHOW server_encoding") == "UTF8"
        methods = "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules"
        assert query_value(url, methods) == "scram-sha-256"
    finally:
        server.stop()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "var").iterdir()}
    assert modes == {"data": 0o700, "postgres.password": 0o600, "postgres.log": 0o600}


def test_a_second_start_keeps_the_data(server: Postgres) -> None:
    query_value(server.start(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()

    assert query_value(server.start(), "SELECT answer FROM kept") == 42


def test_the_url_can_be_for_any_database(server: Postgres) -> None:
    server.start()

    assert query_value(server.url("postgres"), "SELECT current_database()") == "postgres"


def test_a_wrong_password_is_refused(server: Postgres) -> None:
    address = server.start().partition("@")[2]

    with pytest.raises(asyncpg.InvalidPasswordError):
        query_value(f"postgresql://payintent:guessed@{address}", "SELECT 1")


def test_a_stop_is_clean_and_can_be_repeated(server: Postgres, data_dir: Path) -> None:
    server.start()
    assert server.alive()

    server.stop()
    server.stop()

    assert not server.alive()
    assert not (data_dir / "postmaster.pid").exists()
    assert (data_dir.parent / "postgres.log").read_text().endswith("is shut down\n")
    with pytest.raises(PostgresError, match="has not been started"):
        server.url()


def test_a_stop_does_not_wait_for_idle_connections(server: Postgres) -> None:
    async def stop_while_connected(url: str) -> float:
        connection = await asyncpg.connect(url)
        started = time.monotonic()
        await asyncio.to_thread(server.stop)
        took_s = time.monotonic() - started
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await connection.close()
        return took_s

    assert asyncio.run(stop_while_connected(server.start())) < 5


def test_a_killed_server_is_detected_and_can_be_restarted(server: Postgres, data_dir: Path) -> None:
    server.start()
    os.kill(server_pid(data_dir), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while server.alive():
        assert time.monotonic() < deadline

    assert query_value(server.start(), "SELECT 1") == 1


def test_data_in_use_by_a_running_process_is_refused_and_unchanged(
    server: Postgres, data_dir: Path
) -> None:
    url = server.start()

    with pytest.raises(PostgresError, match="in use by another process"):
        Postgres(data_dir).start()

    assert query_value(url, "SELECT 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the death signal")
def test_the_server_ends_when_its_parent_is_killed(data_dir: Path) -> None:
    with another_process(data_dir) as (parent, url):
        assert query_value(url, "SELECT 1") == 1
        pid = server_pid(data_dir)
        parent.kill()
        wait_until_ended(pid)


def test_ctrl_c_does_not_reach_the_server(data_dir: Path) -> None:
    with another_process(data_dir) as (parent, url):
        assert os.getpgid(server_pid(data_dir)) != os.getpgid(parent.pid)
        assert query_value(url, "SELECT 1") == 1


def test_an_orphaned_server_is_stopped_first(server: Postgres, data_dir: Path) -> None:
    # Start it with the class's command, so that its folder has no running owner.
    first = Postgres(data_dir, durable=False)
    first.start()
    line = Path(f"/proc/{server_pid(data_dir)}/cmdline").read_bytes().decode().split("\0")[:-1]
    first.stop()
    command = [*_launcher(first._bin_dir, data_dir), *line]
    orphan = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        ready = data_dir / "postmaster.pid"
        while not (ready.exists() and "ready" in ready.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)

        assert query_value(server.start(), "SELECT 1") == 1
        assert orphan.wait(PATIENCE_S) == 0
    finally:
        orphan.kill()
        orphan.wait()


def test_a_stale_pid_file_does_not_prevent_a_start(server: Postgres, data_dir: Path) -> None:
    # The worst case: another program of the same user now has this process id.
    owner = data_dir.stat()
    stranger = subprocess.Popen(["sleep", "60"], user=owner.st_uid, group=owner.st_gid)
    try:
        stale = data_dir / "postmaster.pid"
        stale.write_text(f"{stranger.pid}\n{data_dir}\n1\n1\n\n127.0.0.1\n0 0\nready   \n")
        os.chown(stale, owner.st_uid, owner.st_gid)

        assert query_value(server.start(), "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_unfinished_initdb_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data.new").mkdir()
    (tmp_path / "data.new" / "PG_VERSION").write_text("18\n")
    server = Postgres(tmp_path / "data", durable=False)
    try:
        assert query_value(server.start(), "SELECT 1") == 1
    finally:
        server.stop()


def test_data_of_another_version_is_refused_with_both_versions(
    server: Postgres, data_dir: Path
) -> None:
    (data_dir / "PG_VERSION").write_text("11\n")

    with pytest.raises(PostgresError, match=r"requires PostgreSQL 11, .* \(PostgreSQL\) \d\d"):
        server.start()


def test_a_missing_password_file_is_reported(server: Postgres, data_dir: Path) -> None:
    (data_dir.parent / "postgres.password").unlink()

    with pytest.raises(PostgresError, match=r"postgres\.password is missing"):
        server.start()


def test_a_failed_start_shows_the_end_of_the_log(server: Postgres, data_dir: Path) -> None:
    with (data_dir / "postgresql.conf").open("a") as settings:
        settings.write("nonsense = 1\n")

    with pytest.raises(PostgresError, match="unrecognized configuration parameter"):
        server.start()
    assert not server.alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_the_server_runs_below_a_folder_that_only_root_can_read(
    capfd: pytest.CaptureFixture[str],
) -> None:
    closed = Path(tempfile.mkdtemp())  # owned by root, with mode 0700
    wheel = Path(Postgres(closed / "data")._bin_dir)
    programs = closed / "programs"
    shutil.copytree(wheel.parents[1], programs / wheel.parents[1].name, symlinks=True)
    libraries = wheel.parents[2] / f"{wheel.parents[1].name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, programs / libraries.name, symlinks=True)
    bin_dir = programs / wheel.relative_to(wheel.parents[2])
    server = Postgres(closed / "var" / "data", bin_dir=bin_dir, durable=False)
    try:
        assert query_value(server.start(), "SELECT 1") == 1
        status = Path(f"/proc/{server_pid(closed / 'var' / 'data')}/status").read_text()
        assert "CapEff:\t0000000000000004" in status  # CAP_DAC_READ_SEARCH
        assert "\nUid:\t0" not in status
        assert capfd.readouterr().err.count("CAP_DAC_READ_SEARCH") == 1
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()
        shutil.rmtree(closed)
