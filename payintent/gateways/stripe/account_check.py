"""Check a Stripe account by retrieving its balance."""

from collections.abc import Mapping

from msgspec import Struct

from payintent.gateways.account_check import (
    account_works,
    check_response,
    credentials_rejected,
    plain_text,
    unexpected_response,
)
from payintent.gateways.http_client import HttpResult, decode_json
from payintent.gateways.port import AccountCheck, GatewayAccount
from payintent.gateways.stripe.api import read_error_body

#: Prefixes of Stripe's credentials; `rk_` is a restricted key.
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
    """Return a problem that the format of the credentials reveals, or None."""
    for name, prefixes in PREFIXES.items():
        if not account.credentials.get(name, "").startswith(prefixes):
            return credentials_rejected(f"{name} does not begin with {' or '.join(prefixes)}")
    modes = {is_live(account.credentials, name) for name in ("secret_key", "publishable_key")}
    if len(modes) > 1:
        return credentials_rejected(
            "secret_key and publishable_key are of different modes, test and live"
        )
    return None


def is_live(credentials: Mapping[str, str], name: str) -> bool:
    """Return True for a key of live mode, such as `sk_live_…`."""
    return "_live_" in credentials.get(name, "")[:9]


def check_balance(account: GatewayAccount, response: HttpResult, now: float) -> AccountCheck:
    answer = check_response(account, response, now)
    if isinstance(answer, AccountCheck):
        return answer
    error = read_error_body(answer.body)
    if error is not None and answer.status in _REFUSING:
        code = plain_text(error.code or error.type or "")
        return credentials_rejected(
            f"Stripe refuses secret_key: status {answer.status} {code}".rstrip()
        )
    if answer.status != _OK or decode_json(answer.body, _Balance) is None:
        return unexpected_response(account, answer)
    mode = "live" if is_live(account.credentials, "secret_key") else "test"
    return account_works(f"Stripe accepts secret_key, of {mode} mode; webhook_secret was not tried")
