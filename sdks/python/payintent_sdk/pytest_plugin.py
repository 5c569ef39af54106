"""Pytest fixtures for a merchant's tests with a test key.

Pytest loads them if the SDK is installed. Settings are environment variables, or options in
pytest's configuration with the same names in lower case: `PAYINTENT_URL`, `PAYINTENT_API_KEY`,
`PAYINTENT_WEBHOOK_SECRET`, `PAYINTENT_WEBHOOK_PORT`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from payintent_sdk.client import Client
from payintent_sdk.testing import TestSide, WebhookReceiver

_TEST_KEY = "sk_test_"
#: Earlier names of settings, which still work.
_OLDER_NAMES = {"payintent_url": "payintent_api_base_url", "payintent_api_key": "payintent_key"}
_SETTINGS = {
    "payintent_url": "the URL of the Payment Intent Service",
    "payintent_api_key": "the merchant's test key: sk_test_…",
    "payintent_webhook_secret": "the test merchant's callback secrets, separated by spaces",
    "payintent_webhook_port": "the port for webhooks on 127.0.0.1; 0 selects any free port",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings that pytest's configuration may contain."""
    for name, meaning in _SETTINGS.items():
        parser.addini(name, meaning, default="")
    for name in _OLDER_NAMES.values():
        parser.addini(name, "an older name for another setting", default="")


@pytest.fixture(scope="session")
def payintent_client(pytestconfig: pytest.Config) -> Iterator[Client]:
    """Return a client with the test key."""
    key = _required(pytestconfig, "payintent_api_key")
    if not key.startswith(_TEST_KEY):
        pytest.fail("PAYINTENT_API_KEY is not a test key (sk_test_…); tests may use only test keys")
    with Client(key, _required(pytestconfig, "payintent_url")) as client:
        yield client


@pytest.fixture(scope="session")
def payintent(payintent_client: Client) -> TestSide:
    """Return the test merchant, to create and end payments, and to advance its clock."""
    return TestSide(payintent_client)


@pytest.fixture(scope="session")
def payintent_webhooks(pytestconfig: pytest.Config) -> Iterator[WebhookReceiver]:
    """Return a webhook receiver on loopback that verifies signatures with the secret."""
    secrets = _required(pytestconfig, "payintent_webhook_secret").split()
    port = _setting(pytestconfig, "payintent_webhook_port") or "0"
    if not port.isdecimal():
        pytest.fail(f"PAYINTENT_WEBHOOK_PORT is not a port: {port}")
    with WebhookReceiver(secrets, int(port)) as receiver:
        yield receiver


def _required(config: pytest.Config, name: str) -> str:
    value = _setting(config, name)
    if not value:
        pytest.fail(f"set {name.upper()}: {_SETTINGS[name]}")
    return value


def _setting(config: pytest.Config, name: str) -> str:
    for each in filter(None, (name, _OLDER_NAMES.get(name))):
        value = os.environ.get(each.upper(), "").strip() or str(config.getini(each)).strip()
        if value:
            return value
    return ""
