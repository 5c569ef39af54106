"""The states of the checkout by name, and the browser's steps to reach them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from payintent.payments.model import Payment
from tests.web.gallery import Gallery


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The browser's steps to a state."""

    path: str  # and query
    status: int = 200
    ready: str = "main"  # what is to be seen there, a CSS selector, once the page is complete
    posts: str = ""  # it is what answers a form: the CSS selector of its button
    entry: str = ""  # what is entered before
    wallet: bool = False  # the browser has one
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: tuple[str, ...] = ()  # keys of what the page says


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
