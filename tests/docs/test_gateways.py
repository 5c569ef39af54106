"""Each gateway's page matches its adapter's metadata."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.port import Gateway, GatewayCapabilities
from payintent.gateways.settlement_reports import ProviderFileLine
from payintent.gateways.stripe import events as stripe_events
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.onchain.deposit_gateway import DepositGateway
from payintent.onchain.gateway import OnchainGateway
from payintent.reconciliation.file import open_provider_file
from payintent.service import BUILT_IN_PROVIDERS
from tests.docs.parse_pages import ROOT, examples, links, page, rows, section, spans

ADAPTERS: dict[str, type[Gateway]] = {
    adapter.provider: adapter
    for adapter in (StripeGateway, TwoC2pGateway, EcpayGateway, OnchainGateway, DepositGateway)
}
ON_CHAIN = {OnchainGateway.provider, DepositGateway.provider}
PARTS = ("Credentials", "The callback", "Test and live", "Refunds and disputes", "Known limits")
_EVENT = re.compile(
    r"(?:payment_intent|refund|charge\.dispute|radar\.early_fraud_warning)\.[a-z_]+"
)

each_adapter = pytest.mark.parametrize("provider", sorted(ADAPTERS))


def _text(provider: str) -> str:
    return page(f"docs/operate/gateways/{provider}.md")


def _capabilities(provider: str) -> GatewayCapabilities:
    return ADAPTERS[provider].capabilities


def test_every_gateway_that_moves_money_has_a_linked_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "operate" / "gateways").glob("*.md")}
    assert pages == set(ADAPTERS) == BUILT_IN_PROVIDERS - {"simulator", "test", "test_onchain"}
    assert {f"gateways/{name}.md" for name in pages} <= set(links(page("docs/operate/run.md")))


@each_adapter
def test_a_page_has_every_part(provider: str) -> None:
    for part in PARTS:
        assert section(_text(provider), f"## {part}").strip(), part


@pytest.mark.parametrize("provider", sorted(ADAPTERS.keys() - ON_CHAIN))
def test_a_page_lists_unconfirmed_behaviour(provider: str) -> None:
    assert section(_text(provider), "## Unconfirmed behaviour").count("\n- ") > 2


@each_adapter
def test_a_page_lists_the_credentials_that_its_adapter_declares(provider: str) -> None:
    table = {
        name.strip("`"): is_required
        for name, is_required, _ in rows(section(_text(provider), "## Credentials"))
    }
    capabilities = _capabilities(provider)
    assert table == {
        **dict.fromkeys(capabilities.credentials, "yes"),
        **dict.fromkeys(capabilities.optional_credentials, "no"),
    }


def test_the_2c2p_example_converts_a_report_by_its_column_names(
    tmp_path: Path,
) -> None:
    [code] = examples(_text("2c2p"), "python", "convert a report")
    report = (
        "Date,Type,Invoice No,Transaction Ref,Refund Ref,Amount,Currency\n"
        '21/11/2026 15:15:30,Sale,inv7,4711,,"1,590.00",THB\n'
        "21/11/2026 18:00:00,Refund,inv7,4711,r1,-90.00,THB\n"
    )
    command = [sys.executable, "-c", code]
    path = tmp_path / "2026-11-21.csv"
    path.write_bytes(subprocess.check_output(command, input=report.encode()))
    lines = [line for line in open_provider_file(path).read() if isinstance(line, ProviderFileLine)]
    assert [(line.type, line.reference, str(line.amount), line.currency) for line in lines] == [
        ("payment", "inv7.4711", "1590.00", "THB"),
        ("refund", "r1", "90.00", "THB"),
    ]
    assert lines[0].at == datetime(2026, 11, 21, 8, 15, 30, tzinfo=UTC)
    unnamed = report.replace("Transaction Ref", "tranRef").encode()
    result = subprocess.run(command, input=unnamed, capture_output=True, check=False)
    assert (result.returncode, b"KeyError: 'Transaction Ref'" in result.stderr) == (1, True)


@each_adapter
def test_a_page_documents_the_callback_url(provider: str) -> None:
    text = section(_text(provider), "## The callback")
    assert "`callback url`" in text
    assert "`payintent account show`" in text
    [host] = re.findall(r"^NAME=(\S+)$", page("docs/operate/install.md"), re.MULTILINE)
    if provider not in ON_CHAIN:
        assert re.search(rf"https://{re.escape(host)}/v1/callbacks/{provider}/\d`", text)


@each_adapter
def test_a_page_names_only_origins_of_its_adapter(provider: str) -> None:
    origins = {
        "/".join(span.split("/")[:3]) for span in spans(_text(provider)) if span.startswith("https")
    }
    gateway_origins = {origin for origin in origins if "example.com" not in origin}
    assert gateway_origins <= _capabilities(provider).origins


def test_the_stripe_page_lists_the_events_that_the_adapter_reads() -> None:
    events = set(_EVENT.findall(section(_text("stripe"), "## The callback")))
    assert events == set(stripe_events.EVENTS)


@each_adapter
def test_a_page_lists_the_supported_countries_and_currencies(provider: str) -> None:
    limits = section(_text(provider), "## Known limits")
    capabilities = _capabilities(provider)
    for name in capabilities.countries or ():
        assert name in limits, name
    if provider != "2c2p":
        for name in capabilities.decimals or ():
            assert name in limits, name
