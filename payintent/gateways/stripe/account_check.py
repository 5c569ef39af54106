"""The check of an account at Stripe: it retrieves the balance, which changes nothing."""

from collections.abc import Mapping

from msgspec import Struct

from payintent.domain.gateway import AccountCheck, GatewayAccount, OutcomeUnknown
from payintent.gateways.account_check import (
    common_problem,
    not_understood,
    plain_text,
    refused,
    works,
)
from payintent.gateways.http_client import HttpAnswer, decode_json
from payintent.gateways.stripe.api import read_error_body

#: How each credential begins at Stripe; `rk_` is a restricted key.
PREFIXES = {
    "secret_key": ("sk_", "rk_"),
    "publishable_key": ("pk_",),
    "webhook_secret": ("whsec_",),
}
_OK = 200
_REFUSING = frozenset({401, 403})


class _Balance(Struct, tag_field="object", tag="balance"):
    livemode: bool = False


def mistaken_credentials(account: GatewayAccount) -> AccountCheck | None:
    """Return what is wrong with the credentials by their look alone; None where nothing is."""
    for name, prefixes in PREFIXES.items():
        if not account.credentials.get(name, "").startswith(prefixes):
            return refused(f"{name} does not begin with {' or '.join(prefixes)}")
    modes = {is_live(account.credentials, name) for name in ("secret_key", "publishable_key")}
    if len(modes) > 1:
        return refused("secret_key and publishable_key are of different modes, test and live")
    return None


def is_live(credentials: Mapping[str, str], name: str) -> bool:
    """Tell whether a key is of live mode, such as `sk_live_…`; every other one is for tests."""
    return "_live_" in credentials.get(name, "")[:9]


def read_balance(
    account: GatewayAccount, answer: HttpAnswer | OutcomeUnknown, now: float
) -> AccountCheck:
    if problem := common_problem(account, answer, now):
        return problem
    assert isinstance(answer, HttpAnswer)  # noqa: S101 - anything else is a problem
    trouble = read_error_body(answer.body)
    if trouble is not None and answer.status in _REFUSING:
        code = plain_text(trouble.code or trouble.type or "")
        return refused(f"Stripe refuses secret_key: status {answer.status} {code}".rstrip())
    if answer.status != _OK or decode_json(answer.body, _Balance) is None:
        return not_understood(account, answer)
    mode = "live" if is_live(account.credentials, "secret_key") else "test"
    return works(f"Stripe accepts secret_key, of {mode} mode; webhook_secret was not tried")
