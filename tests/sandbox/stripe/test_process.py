"""The Stripe emulator as a process: local only, in memory, and usable with Stripe's client."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import stripe

from tests.sandbox.stripe.conftest import Connect
from tests.support import stripe as sandbox
from tests.support.stripe import running_stripe

pytestmark = pytest.mark.full

LOOPBACK = "0100007F"  # 127.0.0.1, in the kernel's format
SHARED_FILE = Path("/tmp/localstripe.pickle")  # noqa: S108 - localstripe would write this file
ORDER: stripe.params.PaymentIntentCreateParams = {
    "amount": 2_000,
    "currency": "usd",
    "metadata": {"session_id": "sess_1"},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stripe(tmp_path_factory.mktemp("stripe") / "log") as url:
        yield url


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "payintent_sandbox.emulators.stripe", *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost"])  # noqa: S104
def test_the_emulator_refuses_to_listen_on_other_hosts(host: str) -> None:
    result = run("--host", host)
    assert result.returncode == 1
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"STRIPE_KEYS": "sk_test_one"},
        {"STRIPE_KEYS": "pk_test_one:sk_test_one"},
        {"STRIPE_WEBHOOK_URL": "http://127.0.0.1:9/"},
    ],
)
def test_an_incomplete_configuration_is_refused_and_not_displayed(
    environment: dict[str, str],
) -> None:
    result = run(**environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert not [value for value in environment.values() if value in result.stderr]


async def test_the_emulator_listens_only_on_the_loopback_interface(url: str) -> None:
    port = f"{urlsplit(url).port:04X}"
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    ]
    assert listening == [f"{LOOPBACK}:{port}"]


async def test_the_emulator_does_not_write_localstripes_machine_wide_file(
    api: stripe.StripeClient,
) -> None:
    before = SHARED_FILE.stat().st_mtime_ns if SHARED_FILE.exists() else None
    await api.v1.payment_intents.create_async(ORDER)
    after = SHARED_FILE.stat().st_mtime_ns if SHARED_FILE.exists() else None
    assert after == before


async def test_an_idempotency_key_creates_one_intent_and_cannot_be_used_for_another_order(
    api: stripe.StripeClient,
) -> None:
    options: stripe.RequestOptions = {"idempotency_key": "one"}
    first = await api.v1.payment_intents.create_async(ORDER, options)
    repeated = await api.v1.payment_intents.create_async(ORDER, options)
    assert (repeated.id, repeated.client_secret) == (first.id, first.client_secret)
    with pytest.raises(stripe.IdempotencyError):
        await api.v1.payment_intents.create_async({**ORDER, "amount": 1}, options)
    second_intent = await api.v1.payment_intents.create_async(ORDER, {"idempotency_key": "two"})
    assert second_intent.id != first.id


async def test_an_account_can_access_only_its_own_objects(
    api: stripe.StripeClient, connect: Connect
) -> None:
    intent = await api.v1.payment_intents.create_async(ORDER)
    other_client = connect(sandbox.OTHER_SECRET_KEY)
    with pytest.raises(stripe.InvalidRequestError) as missing:
        await other_client.v1.payment_intents.retrieve_async(intent.id)
    assert missing.value.code == "resource_missing"
    with pytest.raises(stripe.InvalidRequestError):
        await other_client.v1.refunds.create_async({"payment_intent": intent.id})
    with pytest.raises(stripe.AuthenticationError):
        await connect("sk_test_nobody").v1.payment_intents.retrieve_async(intent.id)


async def test_refunds_cannot_exceed_the_payment(
    url: str, http: aiohttp.ClientSession, api: stripe.StripeClient
) -> None:
    intent = await api.v1.payment_intents.create_async(ORDER)
    payload = {
        "key": sandbox.PUBLISHABLE_KEY,
        "client_secret": intent.client_secret,
        "number": sandbox.PAYS,
    }
    async with http.post(f"{url}/element/confirm", json=payload) as answer:
        assert (await answer.json())["status"] == "succeeded"
    refund = await api.v1.refunds.create_async({"payment_intent": intent.id, "amount": 1_500})
    assert refund.status == "succeeded"
    with pytest.raises(stripe.InvalidRequestError):
        await api.v1.refunds.create_async({"payment_intent": intent.id, "amount": 501})
    await api.v1.refunds.create_async({"payment_intent": intent.id})
    with pytest.raises(stripe.InvalidRequestError) as over:
        await api.v1.refunds.create_async({"payment_intent": intent.id, "amount": 1})
    assert over.value.code == "charge_already_refunded"


@pytest.mark.parametrize("wrong", ["key", "client_secret"])
async def test_a_payment_needs_the_accounts_key_and_the_intents_secret(
    url: str, http: aiohttp.ClientSession, api: stripe.StripeClient, wrong: str
) -> None:
    intent = await api.v1.payment_intents.create_async(ORDER)
    payload = {
        "key": sandbox.PUBLISHABLE_KEY,
        "client_secret": intent.client_secret,
        "number": sandbox.PAYS,
    }
    payload[wrong] = {
        "key": sandbox.OTHER_PUBLISHABLE_KEY,
        "client_secret": f"{intent.id}_secret_guessed",
    }[wrong]
    async with http.post(f"{url}/element/confirm", json=payload) as answer:
        assert answer.status in {401, 404}
    stored = await api.v1.payment_intents.retrieve_async(intent.id)
    assert stored.status == "requires_payment_method"
