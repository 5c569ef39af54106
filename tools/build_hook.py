"""Hatch build hook: record the commit, and include packages for merchants in the wheel.

`RELEASE_PACKAGES` is the folder that contains the packages. Without it, the wheel has no packages.
"""

import os
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ReleaseHook(BuildHookInterface[Any]):
    """Add `payintent/commit.txt` and `payintent/packages/`.

    A build from a source distribution already contains the commit.
    """

    _commit_file: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        included: dict[str, str] = build_data["force_include"]
        if (Path(self.root) / ".git").exists():
            command = ("git", "-C", self.root, "rev-parse", "HEAD")
            commit = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            with NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
                file.write(commit.stdout)
            self._commit_file = Path(file.name)
            included[file.name] = "payintent/commit.txt"
        packages = os.environ.get("RELEASE_PACKAGES", "")
        if packages and self.target_name == "wheel":
            for package in sorted(Path(packages).iterdir()):
                included[str(package)] = f"payintent/packages/{package.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if self._commit_file is not None:
            self._commit_file.unlink()
