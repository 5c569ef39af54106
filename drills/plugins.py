"""`python -m drills.plugins` tests each plugin in `plugins/` against a sandbox.

The WooCommerce plugin runs in PHP with a stub of WordPress and WooCommerce, and the Medusa plugin
runs in Medusa. The grader checks each plugin with the test merchant's secret. Then a test payment
is paid, and the service sends a webhook to the plugin. The exit status is 1 if a check fails. To
select plugins, name them in the arguments: `python -m drills.plugins medusa`.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
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
from drills.medusa import play_medusa, version
from drills.processes import NotReadyError, Program
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.support.ports import free_port
from tools.prepare import prepare

WOOCOMMERCE = Path(__file__).parents[1] / "plugins" / "woocommerce"
AGAIN = (
    "forged_return,other_return,lost_webhook,paid_again,"
    "buyer_cancelled,failed_again,expired_again,double_click_again"
)
_WORKERS = "8"  # each worker of PHP's built-in server handles one request at a time


async def play_woocommerce(sandbox: Sandbox, folder: Path) -> None:
    """Grade the plugin, and pay for an order. Raises `PluginError`."""
    expect(
        shutil.which("php") is not None, "PHP is not installed: install the Debian package php-cli"
    )
    secrets, port = secrets_of(sandbox), free_port()
    url = f"http://127.0.0.1:{port}"
    hooks, orders = f"{url}/?wc-api=payintent", f"{url}/graded"
    register_origin(sandbox, url)
    (folder / "orders").mkdir()
    environment = {
        **secrets,
        "STUB_FOLDER": str(folder / "orders"),
        "PHP_CLI_SERVER_WORKERS": _WORKERS,
    }
    router = str(WOOCOMMERCE / "stub" / "router.php")
    command = ["php", "-d", "display_errors=stderr", "-S", f"127.0.0.1:{port}", router]
    shop = Program("woocommerce", command, environment, folder, f"{url}/healthz")
    await shop.start()
    try:
        failed = await grade(hooks, orders, secrets)
        failed |= await grade(
            hooks, orders, secrets, "--key", secrets["PAYINTENT_API_KEY"], "--only", AGAIN
        )
        expect(not failed, f"failed: {failed}")
        send_webhooks_to(sandbox, hooks)
        async with aiohttp.ClientSession() as http:
            shopper = Shopper(http, orders, secrets)
            order = await shopper.order()
            await shopper.pay(order)
            await shopper.wait_until_paid(order)
    finally:
        if shop.process is not None:
            os.killpg(shop.process.pid, signal.SIGTERM)  # PHP does not stop its workers
        await shop.stop()


PLAYS = {"woocommerce": play_woocommerce, "medusa": play_medusa}
DONE = {
    "woocommerce": "the WooCommerce plugin passed all checks with a stub, and an order was paid",
    "medusa": f"all checks passed in Medusa {version()}, and an order was paid and refunded",
}


def main() -> None:
    """Test the named plugins, or all plugins. The exit status is 1 after a failure."""
    prepare("programs", "medusa")
    for name in sys.argv[1:] or PLAYS:
        scratch = tempfile.TemporaryDirectory(prefix="payintent-plugins-")
        # A new sandbox for each plugin, because deliveries to the previous shop have paused.
        with scratch as folder, running_sandbox() as sandbox:
            try:
                asyncio.run(PLAYS[name](sandbox, Path(folder)))
            except (PluginError, NotReadyError) as error:
                sys.exit(f"plugins: {name}: {error}")
            print(f"plugins: {DONE[name]}", flush=True)


if __name__ == "__main__":
    main()
