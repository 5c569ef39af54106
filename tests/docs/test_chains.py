"""The pages about chains: their commands, metrics, events and settings match the code."""

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payintent.cases.model import CaseKind
from payintent.chains import store as chain_store
from payintent.db.database import Database
from payintent.onchain.settlement_rules import CASE_KINDS, MISMATCH_REASONS
from payintent.runtime.settings import Settings
from tests.docs.command_line import check_command_or_name, find_commands
from tests.docs.parse_pages import ROOT, examples, page, rows, section, spans
from tests.support.contract_node import contract_node, with_node
from tests.support.terminal import Terminal

_SETUP = page("docs/operate/chains.md")
_RUN = page("docs/operate/run-chains.md")
_METRIC = re.compile(r'"(payintent_(?:chain|deposit|sweep)\w+)"')
_EVENT = re.compile(r'_log\.(?:warning|error)\(\s*"(\w+)"|"(chain_(?:incident|endpoint_failed))"')
_SOURCES = [
    item.read_text()
    for where in ("evm/*.py", "chains/*.py", "onchain/**/*.py", "reconciliation/*.py")
    for item in ROOT.glob(f"payintent/{where}")
]
_GETADDRINFO = socket.getaddrinfo


def _read_names(heading: str, start: str = "") -> list[str]:
    """Return the names in the first column of a section's tables."""
    cells = [row[0] for row in rows(section(_RUN, heading))]
    return [name for cell in cells for name in spans(cell) if name.startswith(start)]


def test_every_chain_metric_is_on_the_page() -> None:
    metrics = {name for text in _SOURCES for name in _METRIC.findall(text)}
    assert set(_read_names("## Metrics and alarms", "payintent_")) == metrics


def test_every_event_on_the_page_is_logged_and_chain_events_are_on_the_page() -> None:
    logged = {event or incident for text in _SOURCES for event, incident in _EVENT.findall(text)}
    events = set(_read_names("## Metrics and alarms")) - set(
        _read_names("## Metrics and alarms", "payintent_")
    )
    assert events <= logged
    assert {name for name in logged if name.startswith(("chain_", "watch_", "token_"))} <= events


def test_every_method_that_a_signer_must_support_is_on_the_page() -> None:
    code = (ROOT / "payintent/evm/signer.py").read_text()
    [sentence] = re.findall(r"must\s+support\s([^.]+eth_sendTransaction`)", _SETUP)
    assert spans(sentence) == sorted(set(re.findall(r'"(eth_\w+)"', code)))


def test_the_settings_on_the_page_match_the_code() -> None:
    defaults = {
        f"PAYINTENT_{name.upper()}": field.default
        for name, field in Settings.model_fields.items()
        if name.startswith(("rpc_", "signer_", "chain_"))
    }
    on_page = {row[0].strip("`"): row[2] for row in rows(section(_SETUP, "### Endpoints"))}
    assert on_page.keys() == defaults.keys()
    assert [on_page[name] for name in defaults if "POLL" in name] == [
        f"{value:g}" for name, value in defaults.items() if "POLL" in name
    ]


def test_every_case_that_a_chain_can_cause_is_on_the_page() -> None:
    kinds = {str(case_kind) for case_kind in CASE_KINDS.values()}
    kinds |= {str(CaseKind.RECONCILIATION), str(CaseKind.UNDECIDED)}
    assert set(_read_names("### Cases")) == kinds
    names = spans(section(_RUN, "## How payments end"))
    assert kinds | {str(mismatch_reason) for mismatch_reason in MISMATCH_REASONS.values()} <= set(
        names
    )


async def test_the_chains_and_tokens_on_the_page_match_an_installation(
    settings: Settings,
) -> None:
    database = Database(settings)
    await database.open()
    expected: dict[str, list[Any]] = {"finality": [], "tokens": []}
    for chain in await chain_store.list_chains(database):
        minutes = chain.grace_s // 60
        expected["finality"].append((f"`{chain.slug}`", f"{minutes} min"))
        for token in await chain_store.list_tokens(database, chain.slug):
            if token.enabled:
                expected["tokens"].append((chain.slug, token.symbol, str(token.decimals)))
    await database.close()
    finality = [(row[0], row[3]) for row in rows(section(_SETUP, "### Finality"))]
    tokens = [
        (row[0].strip("`"), row[1].strip("`"), row[2])
        for row in rows(section(_SETUP, "### Tokens"))
        if "," not in row[0]
    ]
    assert sorted(finality) == sorted(expected["finality"])
    assert sorted(tokens) == sorted(expected["tokens"])


@pytest.mark.parametrize("words", find_commands(_SETUP + _RUN), ids=" ".join)
def test_every_command_on_the_pages_is_valid(words: list[str]) -> None:
    check_command_or_name(words)


@pytest.fixture
def terminal_and_tokens(
    settings: Settings, tmp_path: Path
) -> Iterator[tuple[Terminal, tuple[str, str]]]:
    """A terminal of an installation outside the sandbox, with a merchant and a gateway account."""

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        is_example = isinstance(host, bytes) and host.endswith(b".example.com")
        return _GETADDRINFO("93.184.216.34" if is_example else host, *arguments, **options)

    (tmp_path / "c.json").write_text('{"api_key": "k", "signing_secret": "x"}')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(socket, "getaddrinfo", resolve)
        outside = {"sandbox": False, "gateway_origins": "https://x"}
        terminal = Terminal(settings.model_copy(update=outside), patch)
        tokens = terminal.bootstrap()
        add = "account add --provider simulator --base-url https://x --credentials c.json --why x"
        assert terminal.run_approved(tokens, *shlex.split(add)).status == 0
        create = "merchant create --name Nimbus --callback-url https://shop.example.com/ --why test"
        assert terminal.run(*shlex.split(create)).status == 0
        yield terminal, tokens


def test_a_new_contract_is_added_as_described_on_the_page(
    terminal_and_tokens: tuple[Terminal, tuple[str, str]], settings: Settings
) -> None:
    terminal, tokens = terminal_and_tokens
    [snippet] = examples(_SETUP, "sh", "a new contract")
    with contract_node() as url:
        terminal.set_endpoints(with_node(settings, url))
        for line in snippet.splitlines()[1:]:
            words = shlex.split(line)[1:]
            if words[1] == "add-contract":
                result = terminal.run_approved(tokens, *words)
            else:
                result = terminal.run(*words)
            assert (result.status, result.err) == (0, ""), line
    [chain] = [
        item for item in terminal.run("chain", "list", "--json").json if item["slug"] == "bsc"
    ]
    assert [contract["deployed_block"] for contract in chain["contracts"]] == [chain["block"] + 1]
