"""Checks of the shop plugins, in their own languages, that need no shop."""

import shutil
import subprocess
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
FILES = sorted(PLUGINS.rglob("*.php"))


@pytest.mark.skipif(shutil.which("php") is None, reason="PHP is not installed")
def test_the_php_files_of_the_plugins_are_valid() -> None:
    assert len(FILES) > 3
    checks = [
        subprocess.run(["php", "-l", str(path)], capture_output=True, text=True, check=False)
        for path in FILES
    ]
    assert [check.stdout for check in checks if check.returncode] == []
