"""Register the checkout's states by name, with the browser's steps to reach them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from payintent.payments.model import Payment
from tests.web.gallery import Gallery


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The browser's steps to a state."""

    path: str  # with the query
    status: int = 200
    ready: str = "main"  # CSS selector of an element that is visible when the page is complete
    posts: str = ""  # CSS selector of a button, if the state is the response to a form
    entry: str = ""  # the text to enter before the button is pressed
    wallet: bool = False  # whether the browser has a wallet
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: tuple[str, ...] = ()  # keys of messages on the page


Arrange = Callable[[Gallery], Awaitable[Visit]]
STATES: dict[str, Arrange] = {}


def state(arrange: Arrange) -> Arrange:
    """Register a state under its function's name."""
    STATES[arrange.__name__.replace("_", "-")] = arrange
    return arrange


def visit_of(payment: Payment, more: str = "", **fields: Any) -> Visit:
    return Visit(path=f"/c/{payment.checkout_id}{more}", **fields)


def embedded(gallery: Gallery) -> str:
    return f"?embed_origin={gallery.origin}&nonce=n1"
