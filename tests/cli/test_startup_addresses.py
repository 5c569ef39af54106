"""Addresses that are accepted at startup: two hosts per chain, HTTPS, no public sandbox."""

from typing import Any

import pytest
from pydantic import ValidationError

from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import UnusableAddressError, check_addresses
from payintent.service import open_service
from tests.support.terminal import Terminal

FIRST, SECOND = "https://rpc.one.example/key", "https://rpc.other.example/key"


def change_settings(settings: Settings, **changes: Any) -> Settings:
    return Settings.model_validate(
        settings.model_dump()
        | {"database_url": settings.database_url, "sandbox": False, "chain_watched_s": 60}
        | changes
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rpc_bsc": f"{FIRST},{SECOND}"},
        {"rpc_bsc": f"http://127.0.0.1:8545,{SECOND}"},
        {"rpc_bsc": f"http://[::1]:8545,http://localhost:8546,{SECOND}"},
        {"signer_bsc": "http://127.0.0.1:8550"},
        {"signer_bsc": "https://signer.internal"},
        {"rpc_bsc": FIRST, "chain_any_endpoints": True},
        {"rpc_bsc": "http://10.0.0.7:8545", "chain_any_endpoints": True},
        {"gateway_origins": "https://gateway.example.com, https://Gateway.example.com:8443,"},
        {"sandbox": True, "rpc_bsc": "http://10.0.0.7:8545"},
        {"sandbox": True, "api_base": "http://192.168.1.9:8080/v1"},
        {"sandbox": True, "api_base": "http://payintent:8080/v1"},
    ],
)
def test_valid_addresses_are_accepted(settings: Settings, changes: dict[str, Any]) -> None:
    check_addresses(change_settings(settings, **changes))


def test_doctor_reports_an_explicitly_allowed_endpoint_as_a_warning(settings: Settings) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal = Terminal(settings.model_copy(update={"sandbox": False}), patch)
        patch.setenv("PAYINTENT_RPC_BSC", "http://127.0.0.1:1/key-of-ours")
        refused = terminal.run("doctor")
        patch.setenv("PAYINTENT_CHAIN_ANY_ENDPOINTS", "true")
        allowed = terminal.run("doctor")
    problem = "PAYINTENT_RPC_BSC needs two endpoints on different hosts"
    assert f"FAIL  {problem}, or set PAYINTENT_CHAIN_ANY_ENDPOINTS" in refused.out
    assert f"WARN  allowed by PAYINTENT_CHAIN_ANY_ENDPOINTS: {problem}" in allowed.out
    assert "key-of-ours" not in refused.out + allowed.out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rpc_bsc": FIRST}, "two endpoints on different hosts"),
        ({"rpc_bsc": f"{FIRST},{FIRST}/other"}, "two endpoints on different hosts"),
        ({"rpc_bsc": f"{FIRST},https://RPC.one.example./x"}, "two endpoints on different hosts"),
        (
            {"rpc_bsc": f"{FIRST},http://rpc.other.example/key"},
            "must use https or refer to this machine",
        ),
        (
            {"rpc_bsc": f"{FIRST},http://127.0.0.1.evil.example"},
            "must use https or refer to this machine",
        ),
        ({"signer_bsc": "http://10.0.0.7:8550"}, "must use https or refer to this machine"),
        ({"sandbox": True, "api_base": "https://api.shop.com/v1"}, "PAYINTENT_API_BASE is public"),
        ({"sandbox": True, "api_base": "http://8.8.8.8/v1"}, "PAYINTENT_API_BASE is public"),
        ({"sandbox": True, "checkout_base": "https://pay.shop.com/c"}, "CHECKOUT_BASE is public"),
    ],
)
async def test_the_service_does_not_start_with_an_unusable_address(
    settings: Settings, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnusableAddressError, match=message) as refused:
        await open_service(change_settings(settings, **changes))
    assert "example" not in str(refused.value), "an endpoint URL may contain a key"


@pytest.mark.parametrize(
    ("origins", "number"),
    [
        ("gateway.example.com", 1),
        ("https://a.example; https://b.example", 1),
        ("https://a.example,https://*.b.example", 2),
        ("https://user:secret@a.example", 1),
        ("ftp://a.example", 1),
    ],
)
def test_an_invalid_gateway_origin_is_reported_by_its_number(
    settings: Settings, origins: str, number: int
) -> None:
    with pytest.raises(ValidationError) as refused:
        change_settings(settings, gateway_origins=origins)
    [error] = refused.value.errors()
    assert f"invalid entry (number {number})" in error["msg"]
    assert "example" not in error["msg"]
