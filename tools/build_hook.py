"""Hatch build hook: record the commit in wheels and source distributions."""

import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Add `payintent/commit.txt`. A build from a source distribution already contains it."""

    _file: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        if not (Path(self.root) / ".git").exists():
            return
        command = ("git", "-C", self.root, "rev-parse", "HEAD")
        commit = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        with NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write(commit.stdout)
        self._file = Path(file.name)
        build_data["force_include"][file.name] = "payintent/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if self._file is not None:
            self._file.unlink()
