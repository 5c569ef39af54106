"""axe's findings on a page, and further checks: clipped, unreachable or unreadable content."""

import asyncio
import itertools
from typing import Any

from playwright.async_api import Page

from tests.support.node import tool

_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
TARGET_PX = 24  # WCAG 2.2, 2.5.8
OUTLINE_PX = 2
WORD_CHARS = 32  # an id of ours has 27

_AXE = """async ([tags, rules]) => {
  const runOnly = rules.length ? { type: "rule", values: rules } : { type: "tag", values: tags };
  // A frame is its provider's own; what cannot be told is no finding.
  // Preloading serves one rule alone, which is none of ours.
  const found = await axe.run(document, {
    runOnly, iframes: false, preload: false, resultTypes: ["violations"],
  });
  return found.violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
}"""

_OVERFLOW = """() => {
  const found = [];
  // What scrolls by itself may hold more than it shows; keys reach it.
  const scrolled = (one) => {
    const region = one.parentElement?.closest("[tabindex='0']");
    return region && getComputedStyle(region).overflowX === "auto";
  };
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) found.push(`the page is ${scrollWidth} wide on ${clientWidth}`);
  for (const one of document.body.querySelectorAll("*")) {
    const { right, left, width } = one.getBoundingClientRect();
    if (!width || one.closest(".hidden") || scrolled(one)) continue;
    const name = `${one.localName}.${one.className}`;
    if (right > clientWidth + 1 || left < -1) found.push(`${name} stands out of the screen`);
    const cut = one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    if (cut && getComputedStyle(one).overflowX === "hidden") found.push(`${name} is cut off`);
  }
  return found;
}"""

_SMALL = """(least) => {
  const found = [];
  for (const one of document.querySelectorAll("a, button, input, select, summary")) {
    if (one.type === "hidden" || !one.checkVisibility()) continue;
    const { width, height } = (one.closest("label") ?? one).getBoundingClientRect();
    if (Math.min(width, height) < least) {
      found.push(`${one.localName} ${one.textContent.trim()} is ${width} x ${height}`);
    }
  }
  return found;
}"""

# A word of people and an id stand on one line; longer hashes and names of files may be broken.
_TOO_WIDE = """(most) => {
  const found = [];
  for (const one of document.querySelectorAll(".table, dl.record, ul.plain, .story, form")) {
    const { scrollWidth, clientWidth } = one;
    if (scrollWidth > clientWidth + 1) {
      found.push(`${one.ariaLabel ?? one.className} is ${scrollWidth} wide on ${clientWidth}`);
    }
  }
  const words = /\\d{4}-\\d\\d-\\d\\d|[\\p{L}\\p{N}_]+/gu;
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const holder = text.parentElement;
    if (holder.closest("pre, .unseen, option, style") || !holder.checkVisibility()) continue;
    const before = text.previousSibling?.localName === "wbr";
    const after = text.nextSibling?.localName === "wbr";
    for (const { 0: word, index } of text.data.matchAll(words)) {
      const cut = (before && index === 0) || (after && index + word.length === text.length);
      if (word.length > most || cut) continue;
      const range = document.createRange();
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
      if (lines.size > 1) found.push(`${word} is broken in ${holder.localName}`);
    }
  }
  return [...new Set(found)];
}"""

# What the tab key has to reach, in the order of the document; of a group of radio buttons one.
# What has the focus is noted as each next press arrives, and as the focus goes into a frame, where
# presses are heard by the frame alone.
_REACHABLE = """() => {
  const kinds = "a, button, input, select, textarea, summary, iframe, [tabindex='0']";
  window.reachable = [...document.querySelectorAll(kinds)]
    .filter((one) => one.type !== "hidden" && !one.disabled && one.checkVisibility())
    .filter((one) => one.type !== "radio" || one.checked ||
      (!document.querySelector(`[name="${one.name}"]:checked`) &&
        one === document.querySelector(`[name="${one.name}"]`)));
  window.focused = () => {
    const one = document.activeElement;
    if (!one || one === document.body) return null;
    const { outlineStyle, outlineWidth } = getComputedStyle(one);
    const { top, bottom, left, right } = one.getBoundingClientRect();
    return { at: reachable.indexOf(one), name: one.localName, top: top + scrollY,
      bottom: bottom + scrollY, left, right,
      outline: outlineStyle === "none" ? 0 : parseFloat(outlineWidth) };
  };
  document.activeElement?.blur();
  getSelection().collapse(document.body, 0);  // where the tab key goes on from
  window.passed = [];
  window.listening?.abort();
  window.listening = new AbortController();
  const { signal } = listening;
  addEventListener("keydown", () => passed.push(focused()), { capture: true, signal });
  addEventListener("blur", () => passed.push(focused()), { signal });  // of the window alone
  return reachable.map((one) => `${one.localName} ${one.textContent.trim().slice(0, 30)}`);
}"""
_TAB = {"type": "rawKeyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
_PASSED = "[...passed, focused()]"
_WHOLE = "window.reachable.every((one) => one.isConnected)"

_SAID = """() => {
  const quoted = [...document.querySelectorAll("pre")];  // what others sent, word for word
  for (const one of quoted) one.hidden = true;
  const said = [document.title, document.body.innerText];
  for (const one of quoted) one.hidden = false;
  for (const one of document.querySelectorAll("[alt], [title], [placeholder], [aria-label]")) {
    for (const name of ["alt", "title", "placeholder", "aria-label"]) {
      said.push(one.getAttribute(name) ?? "");
    }
  }
  return said.join("\\n");
}"""
#: What a template leaves where it is given the wrong thing, or nothing.
UNSAID = (
    "built-in method",
    "bound method",
    "undefined",
    "[object",
    "None",
    "NaN",
    "{",
    "}",
    "&amp;",
)


async def axe(page: Page, *rules: str) -> list[str]:
    """Run axe on the current page, by default with all rules."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(tool("axe-core/axe.min.js").read_text())
    return await page.evaluate(_AXE, [list(_TAGS), list(rules)])


async def unfold(page: Page) -> None:
    """Expand everything that can be expanded."""
    await page.evaluate(
        "document.querySelectorAll('details').forEach((one) => { one.open = true })"
    )


async def overflow(page: Page) -> list[str]:
    """Find elements that are wider than the screen, or clipped."""
    return await page.evaluate(_OVERFLOW)


async def too_wide(page: Page) -> list[str]:
    """Find tables that need horizontal scrolling, and words broken in the middle."""
    return await page.evaluate(_TOO_WIDE, WORD_CHARS)


async def too_small(page: Page) -> list[str]:
    """Find targets that are too small."""
    return await page.evaluate(_SMALL, TARGET_PX)


async def unsaid(page: Page) -> list[str]:
    """Find texts that are not meant for people."""
    said: str = await page.evaluate(_SAID)
    return [f"the page says {item!r}" for item in UNSAID if item in said]


async def tabbed(page: Page) -> list[str]:
    """Find elements that the tab key misses, or reaches while invisible or in the wrong order.

    If a live page replaces a part of itself in the meantime, the check starts again.
    """
    found = await _tabbed(page)
    while not await page.evaluate(_WHOLE):
        found = await _tabbed(page)
    return found


async def _tabbed(page: Page) -> list[str]:
    names: list[str] = await page.evaluate(_REACHABLE)
    found: list[str] = []
    reached: list[int] = []
    before: dict[str, Any] | None = None
    for now in await _passed(page, len(names)):
        if reached and now["at"] == reached[-1]:
            continue  # within a frame
        found += _judged(now, before)
        reached.append(now["at"])
        before = now
    missed = [names[at] for at in range(len(names)) if at not in reached]
    in_order = reached == sorted(reached) or [f"it goes {reached}"]
    return [
        *found,
        *(f"{item} is not reached" for item in missed),
        *([] if in_order is True else in_order),
    ]


async def _passed(page: Page, expected: int) -> list[dict[str, Any]]:
    """Press the tab key until the focus leaves the page; return the focused elements."""
    passed: list[dict[str, Any] | None] = []
    # By the protocol of the browser itself: this goes a hundred times through some pages.
    tools = await page.context.new_cdp_session(page)
    for presses in (expected + 1, expected + 1):  # a frame may hold as much again
        await asyncio.gather(*(tools.send("Input.dispatchKeyEvent", _TAB) for _ in range(presses)))
        answer: list[dict[str, Any] | None] = await page.evaluate(_PASSED)
        passed = answer[1:]  # the first press found nothing with the focus
        if None in passed:
            break
    await tools.detach()
    return [item for item in itertools.takewhile(lambda item: item is not None, passed) if item]


def _judged(now: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    found: list[str] = []
    if now["name"] != "iframe" and now["outline"] < OUTLINE_PX:
        found.append(f"{now['name']} does not show that it has the focus")
    if before and now["bottom"] <= before["top"] and _is_same_column(now, before):
        found.append(f"{now['name']} is reached after what stands below it")
    return found


def _is_same_column(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now["left"] < before["right"] and before["left"] < now["right"]
