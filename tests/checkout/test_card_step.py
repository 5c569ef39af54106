"""The card step's content security policy: Stripe's documented policy, or a single origin."""

from typing import Any

import pytest

from payintent.checkout.static_files import SCRIPT_CHECK
from payintent.checkout.steps import CardStep, card_step
from payintent.gateways.stripe.adapter import SCRIPT_URL
from payintent.http.middleware import content_security_policy


def step(script_url: str) -> CardStep:
    card = {
        "provider": "stripe",
        "script_url": script_url,
        "publishable_key": "pk_test_one",
        "client_secret": "pi_1_secret_2",
    }
    result = card_step({"type": "embedded_card", "embedded_card": card})
    assert result is not None
    return result


def policy(script_url: str) -> dict[str, str]:
    """Return the directives of the content security policy of a page with the step."""
    header = content_security_policy(scripts=step(script_url).sources)
    return dict(part.partition(" ")[::2] for part in header.split("; "))


def test_the_policy_for_stripe_matches_its_documentation() -> None:
    directives = policy(SCRIPT_URL)
    assert directives["script-src"] == (
        f"'self' {SCRIPT_CHECK.csp_source} https://*.js.stripe.com https://js.stripe.com"
    )
    assert directives["frame-src"] == (
        "https://*.js.stripe.com https://hooks.stripe.com https://js.stripe.com"
    )
    assert directives["connect-src"] == "'self' https://api.stripe.com"


def test_a_script_from_another_host_may_only_load_from_and_connect_to_its_origin() -> None:
    directives = policy("http://127.0.0.1:8420/element/v3.js")
    assert directives["script-src"] == f"'self' {SCRIPT_CHECK.csp_source} http://127.0.0.1:8420"
    assert directives["frame-src"] == "http://127.0.0.1:8420"
    assert directives["connect-src"] == "'self' http://127.0.0.1:8420"


@pytest.mark.parametrize("kind", ["none", "wait", "redirect", "onchain_session"])
def test_actions_of_other_types_have_no_card_step(kind: str) -> None:
    action: dict[str, Any] = {"type": kind, kind: {}}
    assert card_step(action) is None


def test_the_repr_of_a_step_omits_its_client_secret() -> None:
    assert "secret_2" not in repr(step(SCRIPT_URL))
