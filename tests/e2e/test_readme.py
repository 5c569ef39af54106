"""The integration in README.md works as written."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.parse_pages import ROOT
from tests.docs.run_pages import read_blocks
from tests.e2e.sandbox import Sandbox
from tests.sdks.python_sdk import PYTHON, unpack_package
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

CHAINS = False
WARM = True
pytestmark = [pytest.mark.e2e, pytest.mark.full]


async def test_the_script_pays_verifies_a_webhook_and_refunds(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    output = await asyncio.to_thread(_run_script, sandbox, tmp_path / "shop.py")
    expected = r"redirect the buyer to http\S+\nPAID\nverified payment\.completed pay_\w+\nrefund "
    assert re.fullmatch(expected + r"PENDING\n", output), output


def _run_script(sandbox: Sandbox, script: Path) -> str:
    readme = (ROOT / "README.md").read_text()
    [text] = [block.text for block in read_blocks(readme) if block.language == "python"]
    port = free_port()
    script.write_text(text.replace(", 3000)", f", {port})"))
    sandbox.command("merchant", "set-callback-url", "3", f"http://127.0.0.1:{port}/")
    test_side = sandbox.dev_json["merchants"][0]["test"]
    environment = {
        "PAYINTENT_API_KEY": test_side["api_key"],
        "PAYINTENT_WEBHOOK_SECRET": test_side["callback_secret"],
        "PAYINTENT_URL": sandbox.dev_json["api_url"].removesuffix("/v1"),
        "PYTHONPATH": str(unpack_package()),
    }
    process = subprocess.run(
        [PYTHON, script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
