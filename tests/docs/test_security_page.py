"""The content security policies match the claims of SECURITY.md about the checkout page."""

from collections.abc import AsyncIterator, Callable

import pytest

from payintent.checkout.static_files import SCRIPT_CHECK, offer_script
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.checkout.test_card_step import policy as card_step_policy
from tests.docs.parse_pages import page
from tests.http.test_content_security_policy import SHOP, path_of, policy, profile
from tests.support.contracts import bill, contract_service, offer_tokens
from tests.support.fakes import FakeGateway
from tests.support.world import Api

Policies = dict[str, dict[str, str]]
_GATEWAY_ORIGIN = "https://gateway.example.com"

#: The claims in the page's row, each with a function that checks it against the policies.
CLAUSES: dict[str, Callable[[Policies], bool]] = {
    "scripts load only from the service": lambda policies: (
        policies["plain"]["script-src"] == "'self'"
    ),
    "on the card step, scripts also load from the gateway": (
        lambda policies: _GATEWAY_ORIGIN in policies["card step"]["script-src"].split()
    ),
    "the wallet step and the card step have one inline script each, which is allowed by its hash": (
        lambda policies: (
            policies["wallet step"]["script-src"] == f"'self' {offer_script('en').csp_source}"
            and set(policies["card step"]["script-src"].split())
            == {"'self'", SCRIPT_CHECK.csp_source, _GATEWAY_ORIGIN}
            and not any(
                mark in directives["script-src"]
                for name, directives in policies.items()
                for mark in ("unsafe", "nonce", *(() if name.endswith("step") else ("sha",)))
            )
        )
    ),
    "forms submit only to the service and to the gateways of the offered methods": (
        lambda policies: policies["plain"]["form-action"] == "'self' http://gateway.test"
    ),
    "only the merchant's registered origins can frame the page": lambda policies: (
        (policies["plain"]["frame-ancestors"], policies["registered"]["frame-ancestors"])
        == ("'none'", SHOP)
    ),
}


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    """A service that offers tokens."""
    async with contract_service(settings, gateway) as service:
        yield service


def _clauses() -> list[str]:
    [row] = [line for line in page("SECURITY.md").splitlines() if "| Checkout page |" in line]
    clauses = row.split("|")[2].strip().split("; ")
    assert clauses.pop() == "all output is escaped"  # tests/checkout/test_page.py
    return clauses


async def test_each_claim_about_the_checkout_page_matches_its_policy(api: Api) -> None:
    created = await api.create()
    policies = {"plain": await policy(api, path_of(created))}
    policies["card step"] = card_step_policy(f"{_GATEWAY_ORIGIN}/element.js")
    methods = await offer_tokens(api.world)
    payment, _ = await bill(api.world, methods["USDT"])
    policies["wallet step"] = await policy(api, f"/c/{payment.checkout_id}?lang=en")
    await profile(api, allowed_origins=[SHOP])
    policies["registered"] = await policy(api, path_of(created))
    assert _clauses() == list(CLAUSES)
    assert [clause for clause, holds in CLAUSES.items() if not holds(policies)] == []
