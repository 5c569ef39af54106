"""What `doctor` says of the provider by which operators sign in."""

from payintent.api.oidc.provider import IdentityProvider, ProviderUnusableError
from payintent.config import Settings
from payintent.onchain.chain_checks import CheckResult


async def check_identity_provider(chosen: Settings) -> CheckResult:
    """Read what the provider says of itself, and its keys, as a sign-in does."""
    provider = IdentityProvider(chosen)
    try:
        keys = await provider.keys(None)
    except ProviderUnusableError as error:
        return CheckResult(False, f"{chosen.oidc_issuer}: {error.detail}")
    finally:
        await provider.close()
    if not keys:
        return CheckResult(False, f"{chosen.oidc_issuer} publishes no keys")
    return CheckResult(True, f"{chosen.oidc_issuer} answers; keys: {len(keys)}")
