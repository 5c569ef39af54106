"""Test how the browser SDK's files are served, loaded, typed and packaged."""

import base64
import hashlib
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

import payintent
from payintent.http.pages.static_files import minify_script
from payintent_sandbox.chains.anvil_binary import npm
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer
from tests.web.sdk_driver import SdkPage
from tools.web.check import command
from tools.web.install import FOLDER
from tools.web.pack import pack

pytestmark = pytest.mark.full

CHECKOUT = Path(payintent.__file__).parent / "checkout"
SDK = CHECKOUT / "sdk"
SDK_BYTES_MAX = 6_100  # bytes of v1.js on the wire
WALLET_BYTES_MAX = 3_500

_TOKENS = """
import { readFileSync } from "node:fs";
import { tokenizer } from ACORN;
const tokens = (text) =>
  [...tokenizer(text, { ecmaVersion: 2024, sourceType: "module" })].map(({ type, value }) => [
    type.label,
    value?.pattern ? `${value.pattern}/${value.flags}` : String(value),
  ]);
const [source, minified] = process.argv.slice(2).map((name) => tokens(readFileSync(name, "utf8")));
console.log(JSON.stringify([source.length, JSON.stringify(source) === JSON.stringify(minified)]));
"""
_CONSUMER = """
import { CheckoutError, loadCheckout } from "@payintent/checkout-js";
import type { CheckoutResult, Status } from "@payintent/checkout-js";

export async function pay(checkoutUrl: string): Promise<CheckoutResult | null> {
  const PayIntent = await loadCheckout({ src: "https://pay.test/sdk/v1.js" });
  const sdk = PayIntent({ locale: "th" });
  const off = sdk.on("status", ({ status }: { status: Status }) => console.log(status));
  const widget = sdk.widget({ createCheckout: async ({ amount }) => ({ checkoutUrl: amount }) });
  await widget.setAmount({ amount: "1.00", currency: "USD" });
  widget.on("resize", ({ height }) => height.toFixed());
  // @ts-expect-error an amount is a string
  await widget.setAmount({ amount: 1, currency: "USD" });
  try {
    return await sdk.openPopup({ checkoutUrl });
  } catch (error) {
    if (error instanceof CheckoutError && error.retryable) console.log(error.retryAfterMs);
    return null;
  } finally {
    off();
  }
}
"""


def node(*arguments: str, cwd: Path | None = None) -> str:
    """Run the sandbox's Node.js; return its output."""
    program, *_ = npm()
    result = subprocess.run(
        [program, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def integrity(body: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(body).digest()).decode()}"


async def get(sdk: SdkPage, name: str, **headers: str) -> Answer:
    request_headers = {"Accept-Encoding": "identity"} | {
        header.replace("_", "-"): value for header, value in headers.items()
    }
    return await sdk.api.send("GET", f"/sdk/{name}", headers=request_headers)


def test_minification_preserves_strings_templates_and_regular_expressions() -> None:
    source = """
      // a comment
      const a = "  // no /* comment */ 'x' " + '\\' /* " ';  /* one */
      const b = `  // ${ a }   /* kept */
          kept \\` too`;
      /** many
       *  lines */
      const c = /[/'"]  \\/*  \\/\\//.test( a ) ? a / 2 : b  /  2; // tail
      return   a
    """
    assert minify_script(source) == (
        "const a=\"  // no /* comment */ 'x' \" + '\\' /* \" ';"
        "const b=`  // ${ a }   /* kept */\n          kept \\` too`;"
        "const c=/[/'\"]  \\/*  \\/\\//.test(a)?a / 2 : b  / 2;return a"
    )


SCRIPTS = [
    item for folder in ("sdk", "static") for item in sorted((CHECKOUT / folder).glob("*.js"))
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_minification_preserves_the_tokens_of_the_source(path: Path, tmp_path: Path) -> None:
    source = path.read_text()
    (tmp_path / "source.js").write_text(source)
    (tmp_path / "lighter.js").write_text(minify_script(source))
    acorn = json.dumps((FOLDER / "node_modules/acorn/dist/acorn.mjs").as_uri())
    (tmp_path / "compare.mjs").write_text(_TOKENS.replace("ACORN", acorn))
    count, same = json.loads(node("compare.mjs", "source.js", "lighter.js", cwd=tmp_path))
    assert count > 100
    assert same


@pytest.mark.asyncio(loop_scope="session")
async def test_each_file_is_small_cacheable_and_available_to_every_origin(
    sdk: SdkPage,
) -> None:
    for name, bytes_max in (
        ("v1.js", SDK_BYTES_MAX),
        ("v1.onchain.js", WALLET_BYTES_MAX),
        ("loader.js", 2_000),
    ):
        packed = await get(sdk, name, Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert int(packed.headers["Content-Length"]) <= bytes_max
        assert packed.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert packed.headers["Cache-Control"] == "public, max-age=300"
        assert packed.headers["Access-Control-Allow-Origin"] == "*"
        assert packed.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert packed.headers["X-Content-Type-Options"] == "nosniff"
        plain = await get(sdk, name, Accept_Encoding="gzip;q=0")
        assert "Content-Encoding" not in plain.headers
        assert plain.body == packed.body  # the client has decompressed it
        not_modified = await get(sdk, name, If_None_Match=plain.headers["ETag"])
        assert (not_modified.status, not_modified.body) == (304, b"")
    types = await get(sdk, "v1.d.ts")
    assert types.body == (SDK / "v1.d.ts").read_bytes()
    assert types.headers["Content-Type"] == "text/plain; charset=utf-8"
    for name in ("v2.js", "package.json", "v1.0123456789ab.js", "%2e%2e%2fcheckout.js"):
        assert (await get(sdk, name)).status == 404


@pytest.mark.asyncio(loop_scope="session")
async def test_a_pinned_script_is_immutable_and_pins_the_wallet_script(sdk: SdkPage) -> None:
    plain = await get(sdk, "v1.js")
    pinned = await get(sdk, plain.headers["Content-Location"].removeprefix("/sdk/"))
    assert pinned.body == plain.body
    assert pinned.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    wallets = await get(sdk, "v1.onchain.js")
    name = wallets.headers["Content-Location"].removeprefix("/sdk/")
    assert f'"{name}"'.encode() in plain.body
    assert integrity(wallets.body).encode() in plain.body
    assert (await get(sdk, name)).body == wallets.body
    await sdk.open("bare")
    load = """([src, integrity]) => loader.loadCheckout({ src, integrity }).then(
      (PayIntent) => PayIntent().onchain.discover({ timeoutMs: 1 }))"""
    src = f"{sdk.shop.service}{plain.headers['Content-Location']}"
    assert await sdk.call(load, [src, integrity(plain.body)]) == {"result": []}
    await sdk.open("bare")
    error = await sdk.expect_error(load, [src, integrity(b"something else")])
    assert error["code"] == "SDK_NOT_LOADED"
    await sdk.page.route("**/v1.onchain.*", lambda route: route.fulfill(body="alert(1)"))
    assert (await sdk.expect_error(load, [src, integrity(plain.body)]))["code"] == "SDK_NOT_LOADED"
    await sdk.page.unroute("**/v1.onchain.*")
    assert await sdk.call(load, [src, integrity(plain.body)]) == {"result": []}  # the SDK retries


@pytest.mark.asyncio(loop_scope="session")
async def test_the_loader_loads_the_script_once_and_retries_after_a_failure(sdk: SdkPage) -> None:
    await sdk.open("bare")
    # The import does not add a script element.
    assert await sdk.page.evaluate("document.scripts.length") == 1
    origin = sdk.shop.url
    load = "src => loader.loadCheckout({ src, timeoutMs: 10_000 }).then(() => 1)"
    fast = "src => loader.loadCheckout({ src, timeoutMs: 50 }).then(() => 1)"
    assert (await sdk.expect_error(fast, f"{origin}/hang/sdk/v1.js"))["code"] == "SDK_NOT_LOADED"
    assert (await sdk.expect_error(load, f"{origin}/empty/sdk/v1.js"))["code"] == "SDK_NOT_LOADED"
    assert (await sdk.expect_error(load, f"{origin}/late/sdk/v1.js"))["code"] == "SDK_NOT_LOADED"
    both = "src => Promise.all([src, src].map((src) => loader.loadCheckout({ src }))).then(() => 2)"
    assert await sdk.call(both, f"{origin}/late/sdk/v1.js") == {"result": 2}
    assert sdk.shop.request_counts["/late/sdk/v1.js"] == 2
    for src, code in (
        (None, "MISSING_PARAM"),
        ("/sdk/v1.js", "INVALID_SCRIPT_URL"),
        ("https://pay.test/sdk/v2.js", "INVALID_SCRIPT_URL"),
        ("https://me:secret@pay.test/sdk/v1.js", "INVALID_SCRIPT_URL"),
        ("data:text/javascript,1", "INVALID_SCRIPT_URL"),
        ("http://pay.test/sdk/v1.js", "HTTP_NOT_ALLOWED"),
    ):
        assert (await sdk.expect_error(load, src))["code"] == code


@pytest.mark.asyncio(loop_scope="session")
async def test_the_sdk_refuses_to_run_on_an_insecure_page(sdk: SdkPage, browser: Browser) -> None:
    async with await browser.new_context() as plain:
        page = await plain.new_page()
        scripts = {name: (await get(sdk, name)).body.decode() for name in ("v1.js", "loader.js")}
        html = (
            "<!doctype html><title>x</title><script src='/v1.js'></script>"
            "<script type='module'>import * as loader from '/loader.js';"
            "globalThis.loader = loader;</script>"
        )

        async def answer(route: Any) -> None:
            name = route.request.url.rpartition("/")[2]
            kind = "text/javascript" if name in scripts else "text/html"
            await route.fulfill(body=scripts.get(name, html), content_type=kind)

        await page.route("http://shop.test/**", answer)
        await page.goto("http://shop.test/")
        await page.wait_for_function("globalThis.loader")
        insecure_sdk = SdkPage(sdk.api, sdk.shop, page)
        bases = "{ apiBase: 'https://pay.test/v1', checkoutBase: 'https://pay.test/c' }"
        error = await insecure_sdk.expect_error(f"async () => PayIntent({bases})")
        assert error["code"] == "HTTP_NOT_ALLOWED"
        load = "() => loader.loadCheckout({ src: 'https://pay.test/sdk/v1.js' })"
        assert (await insecure_sdk.expect_error(load))["code"] == "HTTP_NOT_ALLOWED"


def test_the_package_can_be_imported_on_a_server_and_has_types(tmp_path: Path) -> None:
    home = tmp_path / "node_modules" / "@payintent"
    home.mkdir(parents=True)
    with tarfile.open(pack(tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "package").rename(home / "checkout-js")
    names = {path.name for path in (home / "checkout-js").iterdir()}
    assert names == {"README.md", "loader.js", "package.json", "v1.d.ts", "v1.js", "v1.onchain.js"}
    (tmp_path / "server.mjs").write_text(
        'import { loadCheckout } from "@payintent/checkout-js";\n'
        'loadCheckout({ src: "https://pay.test/sdk/v1.js" }).catch((e) => console.log(e.code));\n'
    )
    assert node("server.mjs", cwd=tmp_path) == "SSR_UNSUPPORTED\n"
    (tmp_path / "shop.ts").write_text(_CONSUMER)
    options = "--strict --noEmit --target es2022 --module esnext --moduleResolution bundler"
    libraries = ["--lib", "es2022,dom", "--ignoreConfig", "shop.ts"]
    _, *compiler = command("typescript/bin/tsc", *options.split(), *libraries)
    node(*compiler, cwd=tmp_path)
