"""The documents that the service publishes, from an installed wheel or a repository checkout."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from payintent.runtime.version import read_commit

TEMPLATES = resources.files("payintent") / "http" / "docs" / "templates"
_REPOSITORY = Path(__file__).parents[3]
OPENAPI = "docs/openapi.yaml"
OPENAPI_PAGES = "docs/openapi-pages.yaml"
RUNBOOK = "docs/operate/runbook-payments.md"


@dataclass(frozen=True, slots=True)
class Guide:
    """A Markdown page at `/docs/{name}`; `path` is its path in the repository."""

    name: str
    path: str
    title: str
    summary: str

    @property
    def url(self) -> str:
        return f"/docs/{self.name}"


#: The pages for merchants, in reading order.
GUIDES = (
    Guide(
        "integrate",
        "docs/integrate/start.md",
        "Integration guide",
        "Create a payment, redirect the buyer, handle the webhook, and make a refund.",
    ),
    Guide(
        "quickstart",
        "docs/integrate/quickstart.md",
        "Quickstart",
        "Create and pay a test payment on your machine, and receive its webhook.",
    ),
    Guide(
        "portal",
        "docs/integrate/portal.md",
        "The merchant portal",
        "Set up the test side, from the invitation to the first verified webhook.",
    ),
    Guide(
        "payments",
        "docs/integrate/payments.md",
        "Create payments",
        "Create, read, cancel and list payments, and retry requests safely.",
    ),
    Guide(
        "checkout",
        "docs/integrate/checkout.md",
        "Checkout and return",
        "Redirect buyers, open a popup, embed a widget, or build your own page.",
    ),
    Guide(
        "webhooks",
        "docs/integrate/webhooks.md",
        "Webhooks",
        "Verify webhooks, and recover events that your server missed.",
    ),
    Guide(
        "refunds",
        "docs/integrate/refunds.md",
        "Refunds, disputes and statements",
        "Refund payments, and read disputes, your balance and statements.",
    ),
    Guide(
        "payment-links",
        "docs/integrate/payment-links.md",
        "Payment links",
        "Get paid without a shop: create links with a fixed or open amount.",
    ),
    Guide(
        "stablecoins",
        "docs/integrate/stablecoins.md",
        "Stablecoins",
        "Accept tokens from the buyer's wallet, and build your own wallet page.",
    ),
    Guide(
        "testing",
        "docs/integrate/testing.md",
        "Testing",
        "Use test keys, test cards and the test clock to produce every outcome.",
    ),
    Guide(
        "sdk-python",
        "sdks/python/README.md",
        "Python SDK",
        "Install and use the client library for Python.",
    ),
    Guide(
        "sdk-typescript",
        "sdks/typescript/README.md",
        "TypeScript SDK",
        "Install and use the client library for Node.js, Deno, Bun and edge runtimes.",
    ),
    Guide(
        "sdk-cli",
        "sdks/cli/README.md",
        "Command-line tool",
        "List payments, forward webhooks to your machine, and grade your integration.",
    ),
    Guide(
        "sdk-mcp",
        "sdks/mcp/README.md",
        "MCP server",
        "Give a coding agent access to your test payments.",
    ),
    Guide(
        "grader",
        "docs/integrate/grader.md",
        "Integration checks",
        "Run automated checks against your webhook receiver.",
    ),
    Guide(
        "errors-limits-routes",
        "docs/integrate/reference.md",
        "Errors, limits and routes",
        "Handle errors and rate limits, and find a route.",
    ),
    Guide(
        "glossary",
        "docs/integrate/glossary.md",
        "Glossary",
        "Look up the terms of the API.",
    ),
)


def read_document(path: str) -> str:
    """Return the text of a published document. In a wheel, it is next to the templates."""
    file: Traversable = TEMPLATES / path
    if not file.is_file():
        file = _REPOSITORY / path
    return file.read_text(encoding="utf-8")


@cache
def read_openapi_yaml() -> bytes:
    """Return the OpenAPI document with this installation's commit."""
    text = read_document(OPENAPI)
    return text.replace("x-commit: unknown", f"x-commit: {read_commit()}", 1).encode()


@cache
def read_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document with page routes. The result is cached; do not modify it.

    `/openapi.yaml` omits page routes, because generated API clients do not need them.
    """
    import yaml  # imported here because few processes need it

    document, pages = (
        yaml.load(text, Loader=yaml.CSafeLoader)
        for text in (read_openapi_yaml(), read_document(OPENAPI_PAGES))
    )
    document["tags"] += pages["tags"]
    document["paths"] |= pages["paths"]
    for section, components in pages["components"].items():
        document["components"][section] |= components
    return document
