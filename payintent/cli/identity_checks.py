"""The check of `doctor` on the OpenID Connect provider."""

from payintent.api.oidc.provider import IdentityProvider, ProviderUnusableError
from payintent.config import Settings
from payintent.onchain.chain_checks import CheckResult


async def check_identity_provider(settings: Settings) -> CheckResult:
    """Read the provider's metadata and keys, as a sign-in does."""
    provider = IdentityProvider(settings)
    try:
        keys = await provider.keys(None)
    except ProviderUnusableError as error:
        return CheckResult(False, f"{settings.oidc_issuer}: {error.detail}")
    finally:
        await provider.close()
    if not keys:
        return CheckResult(False, f"{settings.oidc_issuer} publishes no keys")
    return CheckResult(True, f"{settings.oidc_issuer} responds; keys: {len(keys)}")
