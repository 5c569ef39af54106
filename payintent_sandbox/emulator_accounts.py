"""All emulators except the simulator: their processes and secrets, and our accounts with them."""

import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from payintent.gateway_accounts.operations import AddAccount, ChangeAccount
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.merchants.provisioning import get_default_methods
from payintent.operators.operation import Actor
from payintent.service import Service
from payintent_sandbox.emulators.twoc2p.keys import make_pair
from payintent_sandbox.processes import ChildProcess

_HOST = "127.0.0.1"
_DIGITS = "0123456789"
_HEX_16 = 8  # bytes; in hex, they have the length of ECPay's keys


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSpec:
    """An emulator: the environment of its process, and the credentials of our account."""

    provider: str
    module: str
    secrets: Callable[[], dict[str, str]]  # generates new secrets
    environment: Callable[[Mapping[str, str], str], dict[str, str]]  # from secrets, callback URL
    credentials: Callable[[Mapping[str, str], str], dict[str, str]]  # from secrets, emulator URL


@dataclass(frozen=True, slots=True)
class RunningEmulator:
    """An emulator and its port. In the methods, `stored` is its entry from `make_secrets`."""

    spec: EmulatorSpec
    port: int

    @property
    def provider(self) -> str:
        return self.spec.provider

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    def child(self, stored: Mapping[str, Any], api_url: str, time_scale: float) -> ChildProcess:
        """Return the emulator's process, which sends callbacks to this API."""
        command = [sys.executable, "-m", self.spec.module]
        callback_url = f"{api_url}/callbacks/{self.provider}/{stored['account_id']}"
        return ChildProcess(
            self.provider,
            [*command, "--host", _HOST, "--port", str(self.port)],
            self.spec.environment(stored["secrets"], callback_url)
            | {"SIM_TIME_SCALE": f"{time_scale:g}"},
        )

    async def settle(self, service: Service, actor: Actor, stored: dict[str, Any]) -> None:
        """Add our account with the emulator, or update its URL, because ports can change."""
        credentials = self.spec.credentials(stored["secrets"], self.url)
        if stored["account_id"] is None:
            new = AddAccount(provider=self.provider, base_url=self.url, credentials=credentials)
            stored["account_id"] = (await service.run_operation(new, actor)).id
        else:
            moved = ChangeAccount(
                account_id=stored["account_id"], base_url=self.url, credentials=credentials
            )
            await service.run_operation(moved, actor)

    async def offer(
        self, service: Service, actor: Actor, stored: Mapping[str, Any], merchant_id: int
    ) -> None:
        """Add the emulator's payment methods to a merchant, after its existing methods."""
        account_id = stored["account_id"]
        methods = await service.run_operation(ListPaymentMethods(merchant_id=merchant_id), actor)
        if any(method.account_id == account_id for method in methods):
            return
        for position, default in enumerate(get_default_methods(self.provider), start=len(methods)):
            new = AddPaymentMethod(
                merchant_id=merchant_id,
                account_id=account_id,
                kind=default.kind,
                label=default.label,
                currencies=list(default.currencies),
                countries=None if default.countries is None else list(default.countries),
                fee_rate=default.fee_rate,
                position=position,
            )
            await service.run_operation(new, actor)


def running_emulators(ports: Sequence[int]) -> list[RunningEmulator]:
    """Return each emulator with its port."""
    return [RunningEmulator(spec, port) for spec, port in zip(EMULATORS, ports, strict=True)]


def make_secrets() -> dict[str, Any]:
    """Generate the secrets of each emulator. Our accounts are added later."""
    return {spec.provider: {"account_id": None, "secrets": spec.secrets()} for spec in EMULATORS}


def _stripe_secrets() -> dict[str, str]:
    return {
        "secret_key": f"sk_test_{secrets.token_hex(24)}",
        "publishable_key": f"pk_test_{secrets.token_hex(24)}",
        "webhook_secret": f"whsec_{secrets.token_hex(24)}",
    }


def _stripe_environment(stored: Mapping[str, str], callback_url: str) -> dict[str, str]:
    return {
        "STRIPE_KEYS": f"{stored['secret_key']}:{stored['publishable_key']}",
        "STRIPE_WEBHOOK_URL": callback_url,
        "STRIPE_WEBHOOK_SECRET": stored["webhook_secret"],
    }


def _stripe_credentials(stored: Mapping[str, str], url: str) -> dict[str, str]:
    return {**stored, "script_url": f"{url}/element/v3.js"}


def _ecpay_secrets() -> dict[str, str]:
    return {
        "merchant_id": _number(7),
        "hash_key": secrets.token_hex(_HEX_16),
        "hash_iv": secrets.token_hex(_HEX_16),
        "credit_check_code": _number(8),
    }


def _ecpay_environment(stored: Mapping[str, str], _: str) -> dict[str, str]:
    return {"ECPAY_ACCOUNTS": json.dumps([dict(stored)])}


def _ecpay_credentials(stored: Mapping[str, str], _: str) -> dict[str, str]:
    # The emulator has no daily closing, so refunds do not wait for it.
    return {**stored, "auto_close": "off"}


def _twoc2p_secrets() -> dict[str, str]:
    ours, theirs = make_pair(), make_pair()
    return {
        "merchant_id": f"JT{_number(6)}",
        "secret_key": secrets.token_hex(32),
        "merchant_private_key": ours[0],
        "merchant_public_key": ours[1],
        "gateway_private_key": theirs[0],
        "gateway_public_key": theirs[1],
    }


def _twoc2p_environment(stored: Mapping[str, str], _: str) -> dict[str, str]:
    names = ("merchant_id", "secret_key", "merchant_public_key")
    return {
        "TWOC2P_ACCOUNTS": json.dumps([{name: stored[name] for name in names}]),
        "TWOC2P_PRIVATE_KEY": stored["gateway_private_key"],
    }


def _twoc2p_credentials(stored: Mapping[str, str], _: str) -> dict[str, str]:
    names = ("merchant_id", "secret_key", "merchant_private_key", "gateway_public_key")
    return {name: stored[name] for name in names} | {"utc_offset": "+08:00"}


def _number(digits: int) -> str:
    """Return a random number with this many digits that does not start with 0."""
    return secrets.choice(_DIGITS[1:]) + "".join(secrets.choice(_DIGITS) for _ in range(digits - 1))


#: In the order of their ports.
EMULATORS = (
    EmulatorSpec(
        provider="stripe",
        module="payintent_sandbox.emulators.stripe",
        secrets=_stripe_secrets,
        environment=_stripe_environment,
        credentials=_stripe_credentials,
    ),
    EmulatorSpec(
        provider="ecpay",
        module="payintent_sandbox.emulators.ecpay",
        secrets=_ecpay_secrets,
        environment=_ecpay_environment,
        credentials=_ecpay_credentials,
    ),
    EmulatorSpec(
        provider="2c2p",
        module="payintent_sandbox.emulators.twoc2p",
        secrets=_twoc2p_secrets,
        environment=_twoc2p_environment,
        credentials=_twoc2p_credentials,
    ),
)
