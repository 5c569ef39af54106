import subprocess
import sys

import pytest

_FRAMEWORKS = {"aiohttp", "starlette", "uvicorn", "jinja2"}


def _loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split()).intersection(_FRAMEWORKS | {"typer"})


def test_a_command_starts_without_what_only_servers_need() -> None:
    assert _loaded_by("payintent.cli.commands") == {"typer"}


def test_operations_say_what_their_commands_are_without_its_library() -> None:
    assert _loaded_by("payintent.operations.registry") == set()


@pytest.mark.parametrize("process", ["payintent.app", "payintent.workers"])
def test_a_process_that_serves_has_its_http_client_before_the_first_buyer_waits(
    process: str,
) -> None:
    assert "aiohttp" in _loaded_by(process)
