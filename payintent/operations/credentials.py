"""Check credentials and addresses of accounts against the adapter's capabilities."""

from collections.abc import Mapping
from difflib import get_close_matches

from payintent.domain.errors import BadRequestError
from payintent.domain.gateway import GatewayAccount
from payintent.domain.web_origin import web_origin
from payintent.operations.base import OperationContext
from payintent.operations.validation import check_web_url, quote_input

_CREDENTIALS_MAX, _CREDENTIAL_CHARS_MAX = 20, 20_000


def check_credentials(credentials: Mapping[str, str]) -> None:
    """Check the number of credentials and the length of each."""
    if not 1 <= len(credentials) <= _CREDENTIALS_MAX:
        raise BadRequestError(f"credentials must have 1 to {_CREDENTIALS_MAX} entries")
    if any(not 1 <= len(value) <= _CREDENTIAL_CHARS_MAX for value in credentials.values()):
        raise BadRequestError("a credential is empty or too long")


def check_names(context: OperationContext, provider: str, credentials: Mapping[str, str]) -> None:
    """Check that all credentials are known to the provider's adapter and none is missing."""
    capabilities = context.capabilities(provider)
    if capabilities is None:  # its adapter is not installed
        return
    required = capabilities.credentials
    allowed = required | capabilities.optional_credentials
    if unknown := sorted(credentials.keys() - allowed):
        raise BadRequestError(
            f"credentials: an account at {provider} has no "
            f"{', '.join(_suggest(name, allowed) for name in unknown)}; "
            f"it has {', '.join(sorted(allowed))}"
        )
    if missing := ", ".join(sorted(required - credentials.keys())):
        raise BadRequestError(f"credentials: an account at {provider} needs {missing}")


def check_origins(
    context: OperationContext, provider: str, base_url: str | None, credentials: Mapping[str, str]
) -> None:
    """Check that all addresses are on the gateway's origins or on allowed origins."""
    if context.settings.sandbox:
        return
    capabilities = context.capabilities(provider)
    allowed: set[str | None] = set()
    if capabilities is not None:
        allowed = {*capabilities.origins, *map(web_origin, context.settings.more_gateway_origins)}
    addresses = {name: value for name, value in credentials.items() if name.endswith("_url")}
    if base_url is not None:
        addresses["base_url"] = base_url
    for name, url in addresses.items():
        check_web_url(name, url, sandbox=False)
        origin = web_origin(url)
        if origin is None or origin not in allowed:
            raise BadRequestError(
                f"{name}: {quote_input(origin or url)} is not an origin of {provider}; "
                "allow others in PAYINTENT_GATEWAY_ORIGINS"
            )


def check_mode(context: OperationContext, account: GatewayAccount) -> None:
    """Reject test credentials in a live account, and live credentials in a test account."""
    capabilities = context.capabilities(account.provider)
    if capabilities and (mistake := capabilities.mistaken_mode(account)):
        raise BadRequestError(mistake)


def _suggest(name: str, allowed: frozenset[str]) -> str:
    close = get_close_matches(name, sorted(allowed), n=1)
    return quote_input(name) + (f" (did you mean {close[0]}?)" if close else "")
