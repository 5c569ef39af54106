"""Install the dependencies of tests, drills and benchmarks.

`python -m tools.prepare` installs the parts that the tests need; arguments select `PARTS` by name.
Parts that match their lock are not installed again. Node packages and Python environments are
installed into the current virtual environment's folder. Programs are installed from Debian.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

from tests.support import browser as browsers
from tests.support import tools as programs
from tools import examples as shops
from tools import locked, medusa
from tools.openapi import install as openapi
from tools.vitest import install as vitest
from tools.web import install as web

PROFILE = Path(sys.prefix) / "profile"
PY_SPY = PROFILE / "bin" / "py-spy"
#: Debian starts nginx after installing it. This policy prevents that during the installation.
_INSTALL = """
policy=/usr/sbin/policy-rc.d; created=
[ -e $policy ] || { created=$policy; printf '#!/bin/sh\\nexit 101\\n' >$policy; chmod +x $policy; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
for package in "$@"; do apt-get install -y -qq --no-install-recommends "$package" || failed=1; done
[ -z "$created" ] || rm -f "$created"
exit $failed
"""


def is_installed(folder: Path, source: Path) -> bool:
    """Return whether npm has completely installed the lock of `source` into `folder`."""
    lock, copy = source / "package-lock.json", folder / "package-lock.json"
    finished = folder / "node_modules" / ".package-lock.json"  # npm writes it last
    return finished.is_file() and copy.is_file() and copy.read_bytes() == lock.read_bytes()


def has_packages(environment: Path, lock: Path) -> bool:
    """Return whether a Python environment has every package that `lock` pins."""
    folders = environment.glob("lib/python3*/site-packages")
    installed = {
        (_normalize(package.metadata["Name"]), package.version)
        for package in distributions(path=[str(folder) for folder in folders])
    }
    return {
        (_normalize(package.name), package.version) for package in locked.read(lock)
    } <= installed


def has_openapi_tools() -> bool:
    """Return whether everything that `openapi` installs is present."""
    return (
        is_installed(openapi.FOLDER, openapi.HERE)
        and has_packages(openapi.CLIENTS, openapi.LOCKS / "clients.txt")
        and has_packages(openapi.MCP, openapi.LOCKS / "mcp.txt")
    )


def has_web_tools() -> bool:
    """Return whether everything that `web` installs is present."""
    return is_installed(web.FOLDER, web.HERE)


def has_examples() -> bool:
    """Return whether the packages of every shop in `examples/` are present."""
    return all(
        is_installed(shops.FOLDER / name, shops.EXAMPLES / name) for name in shops.NODE
    ) and all(
        has_packages(shops.FOLDER / name, shops.EXAMPLES / name / "requirements.txt")
        for name in shops.PYTHON
    )


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _prepare_openapi() -> None:
    if not has_openapi_tools():
        _report("the contract checkers and client generators")
        openapi.main()


def _prepare_web() -> None:
    if not has_web_tools():
        _report("the script and style checkers")
        web.main()


def _prepare_browser() -> None:
    if not (browsers.find() and browsers.has_shell()):
        _install_from_debian("chromium", "chromium-headless-shell")


def _prepare_programs() -> None:
    _install_from_debian(*sorted(set(programs.missing_packages())))


def _prepare_maven() -> None:
    _prepare_programs()
    if not programs.find("mvn"):
        _install_from_debian("maven")


def _prepare_vitest() -> None:
    _prepare_openapi()
    if not is_installed(vitest.FOLDER, vitest.HERE):
        _report("vitest")
        web.install(vitest.HERE, vitest.FOLDER)


def _prepare_examples() -> None:
    _prepare_openapi()
    if not has_examples():
        _report("the example shops' packages")
        shops.main()


def _prepare_medusa() -> None:
    _prepare_openapi()
    if not is_installed(medusa.FOLDER, medusa.SHOP):
        _report("Medusa")
        web.install(medusa.SHOP, medusa.FOLDER)


def _prepare_profile() -> None:
    lock = openapi.LOCKS / "profile.txt"
    if not has_packages(PROFILE, lock):
        _report("py-spy")
        openapi.install_python(lock, PROFILE)


def _prepare_clients_long() -> None:
    _prepare_maven()
    lock = openapi.LOCKS / "clients-long.txt"
    if not has_packages(openapi.CLIENTS_LONG, lock):
        _report("openapi-generator")
        openapi.install_python(lock, openapi.CLIENTS_LONG)


def _report(text: str) -> None:
    print(f"installing {text} into {sys.prefix}", flush=True)


def _install_from_debian(*packages: str) -> None:
    if not packages:
        return
    names = " ".join(packages)
    print(f"installing {names} from Debian", flush=True)
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    command = [*as_root, "sh", "-c", _INSTALL, "prepare", *packages]
    process = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    if process.returncode != 0:
        print(f"could not install all of {names}; tests that need them will fail", flush=True)


#: The installer of each part.
PARTS: dict[str, Callable[[], None]] = {
    "openapi": _prepare_openapi,
    "web": _prepare_web,
    "browser": _prepare_browser,
    "programs": _prepare_programs,
    "clients-long": _prepare_clients_long,
    "examples": _prepare_examples,
    "medusa": _prepare_medusa,
    "profile": _prepare_profile,
    "vitest": _prepare_vitest,
}
_FOR_TESTS = ("openapi", "web", "browser", "programs", "examples")


def prepare(*names: str) -> None:
    """Install these parts."""
    for name in names:
        PARTS[name]()


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - PARTS.keys():
        sys.exit(f"unknown parts: {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    prepare(*(sys.argv[1:] or _FOR_TESTS))
