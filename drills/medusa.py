"""Tests the Medusa plugin in Medusa: `python -m drills.plugins medusa`.

Medusa, the plugin and a small storefront (`plugins/medusa/shop`) use the test merchant and the
database server of a sandbox. No part of Medusa is replaced by a stub.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from drills.grading import (
    PluginError,
    Shopper,
    expect,
    grade,
    register_origin,
    secrets_of,
    send_webhooks_to,
)
from drills.processes import Program
from payintent.db.driver import connect
from payintent_sandbox.chains.anvil_binary import npm, npm_environment
from tests.e2e.sandbox import Sandbox
from tests.support.ports import free_port
from tools.medusa import PLUGIN, SHOP, add, build, compile_project, run

#: Checks that fail because of Medusa itself. The plugin's page explains the reasons.
OF_MEDUSA = {"refund_twice", "refunded_elsewhere"}
_REFUSED = 409
_CLI = "node_modules/@medusajs/cli/cli.js"


async def play_medusa(sandbox: Sandbox, folder: Path) -> None:
    """Grade the plugin, then pay and refund through Medusa. Raises `PluginError`."""
    secrets = secrets_of(sandbox)
    add(build(folder))
    shop = compile_shop(folder)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    register_origin(sandbox, url)
    environment = npm_environment() | {
        **secrets,
        "DATABASE_URL": await create_database(sandbox),
        "MEDUSA_DISABLE_TELEMETRY": "true",
        "NODE_ENV": "production",
        "PORT": str(port),
        "SHOP_URL": url,
    }
    run([npm()[0], _CLI, "db:migrate", "--skip-scripts"], shop, environment)
    command = [npm()[0], _CLI, "start"]
    program = Program("medusa", command, environment, folder, f"{url}/health", shop)
    await program.start()
    try:
        await _play(sandbox, url, secrets)
    except PluginError:
        print(program.log.read_text(errors="replace")[-4_000:])
        raise
    finally:
        await program.stop()


async def _play(sandbox: Sandbox, url: str, secrets: Mapping[str, str]) -> None:
    hooks, orders = f"{url}/hooks/payintent/shop", f"{url}/graded"
    failed = await grade(hooks, orders, secrets, "--key", secrets["PAYINTENT_API_KEY"])
    expect(failed == OF_MEDUSA, f"failed: {failed}, but expected: {OF_MEDUSA}")
    async with aiohttp.ClientSession() as http:
        shopper = Shopper(http, orders, secrets)
        await _complete(shopper)
        await _poll(shopper)
        send_webhooks_to(sandbox, hooks)
        await _refund(shopper)


async def _complete(shopper: Shopper) -> None:
    """Check that only a paid cart becomes an order, and that a paid cart cannot be changed."""
    order = await shopper.order()
    expect(await shopper.have(order, "complete") == _REFUSED, "an unpaid cart became an order")
    await shopper.pay(order)
    for what in ("change", "pay_again"):
        expect(await shopper.have(order, what) == _REFUSED, f"{what} of a paid cart succeeded")
    expect(await shopper.have(order, "complete") < _REFUSED, "a paid cart did not become an order")
    await shopper.wait_until_paid(order)


async def _poll(shopper: Shopper) -> None:
    """Check that the scheduled job places a paid order if no webhook arrives."""
    order = await shopper.order()
    await shopper.pay(order)
    await shopper.poll()
    await shopper.wait_until_paid(order)


async def _refund(shopper: Shopper) -> None:
    """Check that Medusa's refunds reach the service, but fail if the refunded sums differ."""
    order = await shopper.order()
    await shopper.pay(order)
    await shopper.wait_until_paid(order)
    refunds = f"/payments/{order['payment_id']}/refunds"
    expect(await shopper.have(order, "refund", amount="5") < _REFUSED, "the refund failed")
    await shopper.ask("POST", refunds, {"amount": "1.00"})
    expect(
        await shopper.have(order, "refund", amount="5") == _REFUSED,
        "a refund succeeded although the sums differ",
    )
    refund_rows = (await shopper.ask("GET", refunds))["data"]
    amounts = {
        (refund["amount"], refund.get("reason", "").partition("_")[0]) for refund in refund_rows
    }
    expect(amounts == {("1.00", ""), ("5.00", "Medusa ref")}, f"refunds: {amounts}")


def compile_shop(folder: Path) -> Path:
    """Compile the storefront in a folder. Return the folder in which to start Medusa."""
    shutil.copy(PLUGIN / "tsconfig.json", folder)
    project = folder / "shop"
    shutil.copytree(SHOP, project, ignore=shutil.ignore_patterns("node_modules"))
    compile_project(project)
    built = project / "built"
    shutil.copy(project / "package.json", built)
    (built / "node_modules").symlink_to(project / "node_modules")
    return built


async def create_database(sandbox: Sandbox) -> str:
    """Create a database for Medusa on the service's server, and return its URL."""
    url = str(sandbox.dev_json["database_url"])
    connection = await connect(url)
    try:
        await connection.execute("CREATE DATABASE medusa")
    finally:
        await connection.close()
    return f"{url.rpartition('/')[0]}/medusa"


def version() -> str:
    """Return the version of Medusa that the storefront uses."""
    return json.loads((SHOP / "package.json").read_text())["dependencies"]["@medusajs/medusa"]
