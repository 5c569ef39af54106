"""`payintent env` prints the running sandbox's settings for a shell."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.http_server import clean_up
from tests.support.ports import free_port

pytestmark = pytest.mark.full

_NAMES = ("PAYINTENT_URL", "PAYINTENT_API_KEY", "PAYINTENT_WEBHOOK_SECRET", "VAR_DIR", "PORT_BASE")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    app.router.add_get("/healthz", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await clean_up(runner)


def describe(folder: Path, port: int) -> None:
    """Write the files of a running sandbox."""
    side = {"api_key": "sk_test_$(id)'\"", "callback_secret": "whsec_a+b/c="}
    description = {"api_url": f"http://127.0.0.1:{port}/v1", "merchants": [{"test": side}]}
    folder.mkdir()
    (folder / "dev.json").write_text(json.dumps(description))


async def shell(text: str, var_dir: Path) -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    inherited.pop("PORT_BASE", None)
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", text,
        env=inherited | {"VAR_DIR": str(var_dir), "PYTHON": sys.executable},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_shell_can_evaluate_the_settings_whatever_they_contain(
    tmp_path: Path, port: int
) -> None:
    folder = tmp_path / "it's a $HOME"
    describe(folder, port)
    show = 'printf "%s\\n" ' + " ".join(f'"${name}"' for name in _NAMES)
    text = f'eval "$("$PYTHON" -m payintent env)" && {show}'
    status, out, error = await shell(text, folder)
    url = f"http://127.0.0.1:{port}"
    expected = [url, "sk_test_$(id)'\"", "whsec_a+b/c=", str(folder), str(port)]
    assert (status, error, out.splitlines()) == (0, "", expected)


async def test_nothing_is_exported_if_no_sandbox_is_running(tmp_path: Path) -> None:
    status, out, error = await shell('"$PYTHON" -m payintent env', tmp_path / "none")
    assert (status, out) == (1, "")
    assert "payintent env: " in error
    assert "make dev" in error
    describe(tmp_path / "ended", free_port())
    status, out, error = await shell('"$PYTHON" -m payintent env', tmp_path / "ended")
    assert (status, out) == (1, "")
    assert "does not respond" in error
