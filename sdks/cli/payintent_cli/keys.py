"""API keys from the environment, the system's keyring or a private file.

Except with `grade --key`, keys are not passed as arguments, because arguments are visible to all
users. Every command accepts test keys; live keys require `--live`.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from payintent_cli.usage import UsageError

TEST_KEY = "sk_test_"
_BASE_URL = "http://127.0.0.1:8080"
_SERVICE = "payintent"
_KEYRING_FAILED = (RuntimeError, OSError)  # keyring's own errors are RuntimeErrors


@dataclass(frozen=True, kw_only=True)
class Access:
    """A key, and the URL of its service."""

    key: str = field(repr=False)
    base_url: str


def find_access(*, live: bool, base_url: str | None) -> Access:
    """Return the API key and its service's URL.

    Raises `UsageError` if the key is missing, or is a live key without `--live`.
    """
    stored = _stored(live=live)
    key = _from_environment() or (stored.key if stored else "")
    if not key:
        raise UsageError("no API key: run `payintent-cli login`, or set PAYINTENT_API_KEY")
    key = check_key(key, live=live)
    url = find_base_url(base_url, stored.base_url if stored else _BASE_URL)
    return Access(key=key, base_url=url)


def find_base_url(base_url: str | None, otherwise: str = _BASE_URL) -> str:
    """Return the service's URL: the argument, the environment variable, or `otherwise`."""
    from payintent_sdk.credentials import read_base_url  # imported late, because the import is slow

    url = base_url or _environment("PAYINTENT_URL", "PAYINTENT_API_BASE_URL") or otherwise
    try:
        return read_base_url(url)
    except ValueError as error:
        raise UsageError(str(error)) from None


def check_key(text: str, *, live: bool) -> str:
    """Return a key without surrounding whitespace.

    Raises `UsageError` if the key is invalid, or is a live key without `--live`.
    """
    from payintent_sdk.credentials import read_api_key

    try:
        key = read_api_key(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not key.startswith(TEST_KEY) and not live:
        raise UsageError("this is not a test key (sk_test_); --live allows live keys")
    return key


def keep(key: str, *, live: bool, base_url: str | None) -> str:
    """Store a key and return its location."""
    access = Access(key=check_key(key, live=live), base_url=base_url or _BASE_URL)
    text = json.dumps(asdict(access))
    keyring = _keyring()
    if keyring is not None:
        try:
            keyring.set_password(_SERVICE, _name(live=live), text)
        except _KEYRING_FAILED:
            pass  # keyring is installed without a backend, for example on a server
        else:
            return "the keyring"
    path = _file()
    write_privately(path, json.dumps(_read_file() | {_name(live=live): text}))
    return str(path)


def forget(*, live: bool) -> None:
    """Remove a key that `keep` has stored."""
    keyring = _keyring()
    if keyring is not None:
        try:
            keyring.delete_password(_SERVICE, _name(live=live))
        except _KEYRING_FAILED:
            pass
        except Exception as error:  # the error's class depends on the backend; nothing was stored
            if type(error).__name__ != "PasswordDeleteError":
                raise
    left = _read_file()
    if left.pop(_name(live=live), None) is not None:
        write_privately(_file(), json.dumps(left))


def state_folder() -> Path:
    """Return the folder for state that is stored between runs."""
    named = os.environ.get("XDG_STATE_HOME")
    return (Path(named) if named else Path.home() / ".local/state") / "payintent"


def _stored(*, live: bool) -> Access | None:
    text = None
    keyring = _keyring()
    if keyring is not None:
        try:
            text = keyring.get_password(_SERVICE, _name(live=live))
        except _KEYRING_FAILED:
            text = None
    text = text or _read_file().get(_name(live=live))
    return Access(**json.loads(text)) if text else None


def _environment(*names: str) -> str:
    """Return the value of the first variable that is set. Later names are older."""
    values = (os.environ.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def _from_environment() -> str:
    key = _environment("PAYINTENT_API_KEY", "PAYINTENT_KEY")
    name = os.environ.get("PAYINTENT_API_KEY_FILE")
    return _read_privately(Path(name)).strip() if not key and name else key


def _read_file() -> dict[str, str]:
    path = _file()
    return cast("dict[str, str]", json.loads(_read_privately(path))) if path.exists() else {}


def _read_privately(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"{path} is accessible to other users; run chmod 600 on it")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: it is not UTF-8") from error


def write_privately(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)


def _file() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME")
    return (Path(named) if named else Path.home() / ".config") / "payintent/keys.json"


def _name(*, live: bool) -> str:
    return "live" if live else "test"


def _keyring() -> Any:
    try:
        import keyring  # pyright: ignore[reportMissingImports] - an extra
    except ImportError:
        return None
    return cast("Any", keyring)
