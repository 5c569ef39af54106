"""Build a release into a folder: `python -m tools.release FOLDER`, as `make release` does.

Two builds of a commit are byte-identical: archive times come from the commit, and files are sorted.
`--verify` then installs the release into an empty environment and makes a payment.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tools import medusa, sbom
from tools.openapi import pack_typescript
from tools.prepare import prepare
from tools.web import pack

ROOT = Path(__file__).resolve().parents[1]
_WOOCOMMERCE = ROOT / "plugins" / "woocommerce" / "payintent"
_SDKS = tuple(ROOT / "sdks" / name for name in ("python", "cli", "mcp"))
_LOCKS = ("run", "sandbox", "otel")
CHECKSUMS = "SHA256SUMS"
NOTES = "RELEASE_NOTES.md"


def build(folder: Path) -> None:
    """Build every published file into an empty folder."""
    if changes := _git("status", "--porcelain"):
        raise SystemExit(f"commit or remove these changes first:\n{changes}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = _git("log", "-1", "--format=%ct")
    prepare("openapi", "medusa")
    _build_packages(folder)
    with TemporaryDirectory(prefix="payintent-packages-") as packages:
        for file in folder.iterdir():
            if file.suffix in {".whl", ".tgz", ".zip"}:
                shutil.copy(file, packages)
        os.environ["RELEASE_PACKAGES"] = packages
        _build_python(ROOT, folder, "wheel", "sdist")
        del os.environ["RELEASE_PACKAGES"]
    _build_python(ROOT / "payintent_sandbox", folder, "wheel")
    _write_documents(folder)
    _write_checksums(folder)


def _build_packages(folder: Path) -> None:
    """Build the packages that merchants install."""
    for project in _SDKS:
        _build_python(project, folder, "wheel", "sdist")
    pack.pack(folder)
    pack_typescript.pack(folder)
    medusa.build(folder)
    [version] = re.findall(r"\* Version: (\S+)", (_WOOCOMMERCE / "payintent.php").read_text())
    write_archive(_WOOCOMMERCE, folder / f"payintent-woocommerce-{version}.zip")


def _build_python(project: Path, folder: Path, *kinds: str) -> None:
    targets = [word for kind in kinds for word in ("-t", kind)]
    command = [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def write_archive(source: Path, path: Path) -> None:
    """Write a reproducible zip archive of a folder. All times are the time of the commit."""
    made_at = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC).timetuple()[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*")):
            if file.is_file():
                info = zipfile.ZipInfo(str(file.relative_to(source.parent)), made_at)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, file.read_bytes())


def _write_documents(folder: Path) -> None:
    text = (ROOT / "docs" / "openapi.yaml").read_text()
    commit = _git("rev-parse", "HEAD")
    (folder / "openapi.yaml").write_text(text.replace("x-commit: unknown", f"x-commit: {commit}"))
    for lock in _LOCKS:
        shutil.copy(ROOT / "requirements" / f"{lock}.txt", folder / f"requirements-{lock}.txt")
    sbom.write(folder)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (folder / NOTES).write_text(release_notes((ROOT / "CHANGELOG.md").read_text(), version))


def release_notes(changelog: str, version: str) -> str:
    """Return the changelog's section for a version. Raises `SystemExit` if it is missing."""
    section = re.search(
        rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    if section is None:
        raise SystemExit(f"CHANGELOG.md does not have a section [{version}]")
    return f"# payintent {version}\n\n{section[1].strip()}\n"


def _write_checksums(folder: Path) -> None:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(folder.iterdir())
    ]
    (folder / CHECKSUMS).write_text("".join(lines))


def _git(*words: str) -> str:
    command = ("git", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a release.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--verify", action="store_true", help="install the release and make a payment"
    )
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    build(folder)
    print((folder / CHECKSUMS).read_text(), end="")
    if arguments.verify:
        from tools import release_check

        release_check.verify(folder)


if __name__ == "__main__":
    main()
