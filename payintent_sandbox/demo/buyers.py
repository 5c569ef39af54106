"""The demo's buyers: a browser's HTTP requests to each gateway's pages."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import aiohttp

from payintent_sandbox.demo.stage import OK, DemoStage, Fields, StepError

_PAGES_MAX = 5  # consecutive pages of a gateway
_CARD = "card"  # the card number field of every emulator


@dataclass(slots=True)
class _Form:
    """A form on a page: its action, its hidden fields, and the names of its visible fields."""

    action: str
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    typed: set[str] = field(default_factory=set[str])


class _Forms(HTMLParser):
    """Parser that collects the forms on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[_Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a form or an input."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form" and attributes.get("method") == "post":
            self.forms.append(_Form(attributes.get("action", "")))
        elif tag == "input" and self.forms and attributes.get("type") == "hidden":
            self.forms[-1].hidden[attributes["name"]] = attributes.get("value", "")
        elif tag == "input" and self.forms:
            self.forms[-1].typed.add(attributes["name"])


@dataclass(slots=True)
class Browser:
    """A buyer's browser with a single page; it follows redirects."""

    http: aiohttp.ClientSession
    url: str = ""
    forms: list[_Form] = field(default_factory=list[_Form])

    async def open(self, method: str, url: str, fields: Fields | None = None) -> None:
        """Open a page and read its forms."""
        async with self.http.request(method, url, data=fields) as answer:
            text = await answer.text()
            self.url = str(answer.url)
            if answer.status != OK:
                raise StepError(f"a page at {answer.url.origin()} returned {answer.status}")
        reader = _Forms()
        reader.feed(text)
        self.forms = reader.forms

    async def submit(self, card: str = "") -> None:
        """Send the first form, with the card number if the form has a field for it."""
        if not self.forms:
            raise StepError("the gateway's page has no form")
        form = self.forms[0]
        entered = {_CARD: card} if _CARD in form.typed else {}
        await self.open("POST", urljoin(self.url, form.action), form.hidden | entered)


async def pay_at_page(stage: DemoStage, payment: Fields, selected: Fields, card: str) -> None:
    """Follow the next action, enter a card, and return to the checkout."""
    redirect = selected["next_action"]["redirect"]
    browser = Browser(stage.http)
    await browser.open(redirect["method"], redirect["url"], redirect["fields"] or None)
    for _ in range(_PAGES_MAX):
        await browser.submit(card)
        if browser.url.startswith(payment["checkout_url"]):
            return
    raise StepError("the gateway's page does not return to the checkout")


async def pay_in_element(stage: DemoStage, payment: Fields, selected: Fields, card: str) -> None:
    """Enter a card in the provider's element, and open the return page of the checkout."""
    answer = await confirm(stage, selected, card)
    if "error" in answer:
        raise StepError(f"the element refused the card: {answer['error']}")
    await Browser(stage.http).open("GET", f"{payment['checkout_url']}/return")


async def confirm(stage: DemoStage, selected: Fields, card: str) -> Fields:
    """Press the element's button once; return its response, possibly with an `error`."""
    element = selected["next_action"]["embedded_card"]
    body = {
        "key": element["publishable_key"],
        "client_secret": element["client_secret"],
        "number": card,
    }
    async with stage.http.post(urljoin(element["script_url"], "confirm"), json=body) as answer:
        content: Fields = await answer.json()
        return content
