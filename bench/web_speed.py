"""The speed of a page on a slow phone, measured by the browser and by Lighthouse."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.async_api import Browser, BrowserContext, Cookie

from tests.support import browser as programs
from tests.support.node import node, tool
from tests.web.visiting import PATIENCE_S
from tests.web.wallet import ANNOUNCED

_LATENCY_MS = 150
_BYTES_PER_S = 1.6e6 / 8
_UP_BYTES_PER_S = 750e3 / 8
_CPU_SLOWED = 4
_SETTLED_MS = 700  # the page is assumed to be complete after this time
_LIGHTHOUSE_TIMEOUT_S = 120.0

_WATCH = """(usable) => {
  const seen = { lcp: 0, shift: 0 };
  const watch = (type, each) => new PerformanceObserver((list) =>
    list.getEntries().forEach(each)).observe({ type, buffered: true });
  watch("largest-contentful-paint", (one) => { seen.lcp = one.startTime; });
  watch("layout-shift", (one) => { if (!one.hadRecentInput) seen.shift += one.value; });
  window.seen = seen;
  window.there = new Promise((done) => {
    let put = 0;  // when it was first seen, at the start of the frame that paints it
    const look = () => {
      if (document.querySelector(usable)?.checkVisibility()) put ||= performance.now();
      const [painted] = performance.getEntriesByName("first-contentful-paint");
      if (put && painted) done(Math.max(put, painted.startTime));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}"""


@dataclass(frozen=True, slots=True)
class Speed:
    """Measurements of a visit with an empty cache, except for files of the previous page."""

    usable_s: float
    lcp_s: float
    shift: float


async def visit(
    browser: Browser,
    url: str,
    usable: str,
    *,
    wallet: bool = False,
    cookies: Sequence[Cookie] = (),
    before: str = "",
) -> Speed:
    """Open a page on a slow phone, and wait until an element is present and painted.

    `before` is the method page that the buyer visits first. It prefetches the next step's scripts.
    """
    context = await browser.new_context(viewport={"width": 412, "height": 823})
    await context.add_cookies(cookies)  # type: ignore[arg-type]
    if before:
        await _come_from(context, before)
    page = await context.new_page()
    tools = await context.new_cdp_session(page)
    await tools.send("Network.enable")
    await tools.send(
        "Network.emulateNetworkConditions",
        {
            "offline": False,
            "latency": _LATENCY_MS,
            "downloadThroughput": _BYTES_PER_S,
            "uploadThroughput": _UP_BYTES_PER_S,
        },
    )
    await tools.send("Emulation.setCPUThrottlingRate", {"rate": _CPU_SLOWED})
    if wallet:
        await page.add_init_script(ANNOUNCED)
    await page.add_init_script(f"({_WATCH})({json.dumps(usable)})")
    await page.goto(url)
    async with asyncio.timeout(PATIENCE_S):
        usable_ms: float = await page.evaluate("window.there")
    await page.wait_for_timeout(_SETTLED_MS)
    timings = await page.evaluate("window.seen")
    await context.close()
    return Speed(usable_ms / 1000, timings["lcp"] / 1000, timings["shift"])


async def _come_from(context: BrowserContext, url: str) -> None:
    page = await context.new_page()
    async with page.expect_response("**/wallet.js") as fetched:
        await page.goto(url)
    await (await fetched.value).finished()
    await page.close()


async def lighthouse(url: str) -> tuple[float, float]:
    """Return Lighthouse's performance and accessibility scores of a page on a slow phone."""
    command = (node(), tool("lighthouse/cli/index.js"), url)
    options = (
        "--output=json",
        "--quiet",
        "--only-categories=performance,accessibility",
        "--chrome-flags=--headless=new --no-sandbox --disable-gpu",
    )
    running = await asyncio.create_subprocess_exec(
        *map(str, (*command, *options)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"CHROME_PATH": str(programs.find())},
    )
    async with asyncio.timeout(_LIGHTHOUSE_TIMEOUT_S):
        output, errors = await running.communicate()
    if running.returncode:
        raise RuntimeError(f"lighthouse failed: {errors.decode()[-500:]}")
    categories = json.loads(output)["categories"]
    return categories["performance"]["score"], categories["accessibility"]["score"]
