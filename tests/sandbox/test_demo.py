import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from payintent.sandbox.demo import masked

SECRET = "whsec_very-secret"


def play(var_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "payintent.sandbox.demo"]
    variables = os.environ | {"VAR_DIR": str(var_dir)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def describe(var_dir: Path, **changes: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    merchant = {"id": 1, "name": "Shop", "api_key": "sk_live_x", "callback_secret": SECRET}
    described = {
        "api_url": f"{url}/v1",
        "simulator_url": url,
        "shop_url": url,
        "merchants": [merchant],
    }
    (var_dir / "dev.json").write_text(json.dumps(described | changes))


def test_without_a_sandbox_the_demo_says_how_to_start_one(tmp_path: Path) -> None:
    done = play(tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"demo: {tmp_path}/dev.json is missing: start `make dev` first\n"


def test_a_sandbox_that_is_gone_is_told_in_one_line(tmp_path: Path) -> None:
    describe(tmp_path)
    done = play(tmp_path)
    assert done.returncode == 1
    assert "start `make dev` first" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_description_of_another_shape_is_refused_without_its_secrets(tmp_path: Path) -> None:
    for changes in ({"merchants": [{"callback_secret": SECRET}]}, {"merchants": []}):
        describe(tmp_path, **changes)
        done = play(tmp_path)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "very-secret" not in done.stderr


def test_checkout_ids_are_masked_wherever_they_stand() -> None:
    shown = masked("POST /checkout/cs_0123456789abcdef/quotes, cs_ZYXWvutsrqponmlk")
    assert shown == "POST /checkout/cs_0123…/quotes, cs_ZYXW…"
