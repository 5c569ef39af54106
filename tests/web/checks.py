"""Check a page with axe, and for clipped, unreachable or unreadable content."""

import asyncio
import itertools
from typing import Any

from playwright.async_api import Page

from tests.support.node import tool

_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
TARGET_PX = 24  # WCAG 2.2, 2.5.8
OUTLINE_PX = 2
WORD_CHARS = 32  # our ids have 27

_AXE = """async ([tags, rules]) => {
  const runOnly = rules.length ? { type: "rule", values: rules } : { type: "tag", values: tags };
  // Frames belong to the provider, and inconclusive results are not violations.
  // Preloading is only needed by a rule that we do not check.
  const findings = await axe.run(document, {
    runOnly, iframes: false, preload: false, resultTypes: ["violations"],
  });
  return findings.violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
}"""

_OVERFLOW = """() => {
  const findings = [];
  // A scrollable region may be wider than its visible part if it can be reached by keyboard.
  const scrolled = (element) => {
    const region = element.parentElement?.closest("[tabindex='0']");
    return region && getComputedStyle(region).overflowX === "auto";
  };
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) findings.push(`the page is ${scrollWidth} wide on ${clientWidth}`);
  for (const element of document.body.querySelectorAll("*")) {
    const { right, left, width } = element.getBoundingClientRect();
    if (!width || element.closest(".hidden") || scrolled(element)) continue;
    const name = `${element.localName}.${element.className}`;
    if (right > clientWidth + 1 || left < -1) findings.push(`${name} is outside the screen`);
    const cut = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
    const isHidden = getComputedStyle(element).overflowX === "hidden";
    if (cut && isHidden) findings.push(`${name} is cut off`);
  }
  return findings;
}"""

_SMALL = """(least) => {
  const findings = [];
  for (const element of document.querySelectorAll("a, button, input, select, summary")) {
    if (element.type === "hidden" || !element.checkVisibility()) continue;
    const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
    if (Math.min(width, height) < least) {
      findings.push(`${element.localName} ${element.textContent.trim()} is ${width} x ${height}`);
    }
  }
  return findings;
}"""

# Words and ids must not be broken. Longer hashes and file names may be.
_TOO_WIDE = """(most) => {
  const findings = [];
  for (const element of document.querySelectorAll(".table, dl.record, ul.plain, .story, form")) {
    const { scrollWidth, clientWidth } = element;
    if (scrollWidth > clientWidth + 1) {
      const name = element.ariaLabel ?? element.className;
      findings.push(`${name} is ${scrollWidth} wide on ${clientWidth}`);
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
      if (lines.size > 1) findings.push(`${word} is broken in ${holder.localName}`);
    }
  }
  return [...new Set(findings)];
}"""

# The tab key must reach these elements in document order; a radio group counts as one element.
# The focused element is recorded when the next press arrives. It is also recorded when the focus
# enters a frame, because only the frame receives presses then.
_REACHABLE = """() => {
  const kinds = "a, button, input, select, textarea, summary, iframe, [tabindex='0']";
  window.reachable = [...document.querySelectorAll(kinds)]
    .filter(({ type, disabled }) => type !== "hidden" && !disabled)
    .filter((element) => element.checkVisibility())
    .filter((element) => element.type !== "radio" || element.checked ||
      (!document.querySelector(`[name="${element.name}"]:checked`) &&
        element === document.querySelector(`[name="${element.name}"]`)));
  window.focused = () => {
    const element = document.activeElement;
    if (!element || element === document.body) return null;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const { top, bottom, left, right } = element.getBoundingClientRect();
    return { at: reachable.indexOf(element), name: element.localName, top: top + scrollY,
      bottom: bottom + scrollY, left, right,
      outline: outlineStyle === "none" ? 0 : parseFloat(outlineWidth) };
  };
  document.activeElement?.blur();
  getSelection().collapse(document.body, 0);  // the tab key starts here
  window.passed = [];
  window.listening?.abort();
  window.listening = new AbortController();
  const { signal } = listening;
  addEventListener("keydown", () => passed.push(focused()), { capture: true, signal });
  addEventListener("blur", () => passed.push(focused()), { signal });  // only of the window
  return reachable.map(
    ({ localName, textContent }) => `${localName} ${textContent.trim().slice(0, 30)}`);
}"""
_TAB = {"type": "rawKeyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
_READ_PASSED = "[...passed, focused()]"
_WHOLE = "window.reachable.every((element) => element.isConnected)"

_READ_TEXTS = """() => {
  const quoted = [...document.querySelectorAll("pre")];  // verbatim content from third parties
  for (const element of quoted) element.hidden = true;
  const texts = [document.title, document.body.innerText];
  for (const element of quoted) element.hidden = false;
  for (const element of document.querySelectorAll("[alt], [title], [placeholder], [aria-label]")) {
    for (const name of ["alt", "title", "placeholder", "aria-label"]) {
      texts.push(element.getAttribute(name) ?? "");
    }
  }
  return texts.join("\\n");
}"""
#: Strings that appear on a page if a template receives a wrong value or none.
RAW_TEXTS = (
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
    """Run axe on the current page, with all rules if none are given."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(tool("axe-core/axe.min.js").read_text())
    return await page.evaluate(_AXE, [list(_TAGS), list(rules)])


async def unfold(page: Page) -> None:
    """Expand everything that can be expanded."""
    await page.evaluate(
        "document.querySelectorAll('details').forEach((element) => { element.open = true })"
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


async def raw_texts(page: Page) -> list[str]:
    """Find technical strings that must not be displayed."""
    text: str = await page.evaluate(_READ_TEXTS)
    return [f"the page contains {item!r}" for item in RAW_TEXTS if item in text]


async def tab_problems(page: Page) -> list[str]:
    """Find elements that the tab key misses, or reaches in the wrong order or without an outline.

    If a live update replaces a part of the page during the check, the check starts again.
    """
    problems = await _find_tab_problems(page)
    while not await page.evaluate(_WHOLE):
        problems = await _find_tab_problems(page)
    return problems


async def _find_tab_problems(page: Page) -> list[str]:
    names: list[str] = await page.evaluate(_REACHABLE)
    problems: list[str] = []
    reached: list[int] = []
    previous: dict[str, Any] | None = None
    for current in await _press_through(page, len(names)):
        if reached and current["at"] == reached[-1]:
            continue  # within a frame
        problems += _judge_step(current, previous)
        reached.append(current["at"])
        previous = current
    missed = [names[at] for at in range(len(names)) if at not in reached]
    in_order = reached == sorted(reached) or [f"it goes {reached}"]
    return [
        *problems,
        *(f"{item} is not reached" for item in missed),
        *([] if in_order is True else in_order),
    ]


async def _press_through(page: Page, expected: int) -> list[dict[str, Any]]:
    """Press the tab key until the focus leaves the page; return the focused elements."""
    passed: list[dict[str, Any] | None] = []
    # The browser's protocol is faster than Playwright, which matters for hundreds of presses.
    tools = await page.context.new_cdp_session(page)
    for presses in (expected + 1, expected + 1):  # a frame may contain as many elements again
        await asyncio.gather(*(tools.send("Input.dispatchKeyEvent", _TAB) for _ in range(presses)))
        answer: list[dict[str, Any] | None] = await page.evaluate(_READ_PASSED)
        passed = answer[1:]  # at the first press, nothing had the focus
        if None in passed:
            break
    await tools.detach()
    return [item for item in itertools.takewhile(lambda item: item is not None, passed) if item]


def _judge_step(current: dict[str, Any], previous: dict[str, Any] | None) -> list[str]:
    problems: list[str] = []
    if current["name"] != "iframe" and current["outline"] < OUTLINE_PX:
        problems.append(f"{current['name']} does not indicate the focus")
    if previous and current["bottom"] <= previous["top"] and _is_same_column(current, previous):
        problems.append(f"{current['name']} is reached after an element below it")
    return problems


def _is_same_column(current: dict[str, Any], previous: dict[str, Any]) -> bool:
    return current["left"] < previous["right"] and previous["left"] < current["right"]
