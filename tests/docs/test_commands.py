"""The commands page: its examples run in order, and there is an example for every operation."""

import asyncio
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from payintent.approvals.operations import ListApprovals
from payintent.core import ids
from payintent.operations import OPERATIONS
from payintent.operators.operation import Actor
from payintent.payments.cancel import cancel_by_merchant
from payintent.reconciliation.file import HEADER
from payintent.refunds.create import refund_case
from payintent.refunds.model import AUTO_REFUND
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.docs.parse_pages import blocks, examples, page, section, spans
from tests.support.contract_node import contract_node, with_node
from tests.support.contracts import log_of, record_final_logs, strand_payment
from tests.support.fakes import FakeGateway, captured
from tests.support.operation_examples import PAID_BY_DEPOSIT
from tests.support.terminal import CommandResult, Terminal
from tests.support.world import Api, World

pytestmark = pytest.mark.full

_PAGE, _REFUNDS = page("docs/operate/commands.md"), page("docs/operate/refunds.md")
_SKIPPED = {
    "api",
    "worker",
    "config",
    "dev",
    "devchain",
    "env",
    "seed",
}
_WITHOUT_OPERATIONS = {"migrate", "doctor"}
_SINGLE_WORDS = {"migrate", "doctor", "reconcile"}  # commands with a single word
_CREDENTIALS = b'{"api_key": "a key", "signing_secret": "a secret of the gateway"}'
_PREFIXES = {"quotes": ids.PAYMENT, "payment": ids.PAYMENT, "case": ids.CASE, "refund": ids.REFUND}
_PREFIXES |= {"payment-link": ids.PAYMENT_LINK}
_PREFIXES |= {"approval": ids.APPROVAL, "statement": ids.STATEMENT}
_SIGN_IN = """
    INSERT INTO operator_identity (id, issuer, subject, name, role, expires_at)
    VALUES (gen_random_uuid(), 'https://login.example.com', 'u-1', 'oidc:grace/1', 'viewer',
        clock())
"""
_STATEMENT = """
    INSERT INTO statement (id, merchant_id, currency, chain, number, day, time_zone,
        opening_minor, payments_minor, fees_minor, tax_minor, refunds_minor, disputes_minor,
        adjustments_minor, payouts_minor, closing_minor, first_number, last_number, until_at,
        closed_number, closed_at)
    SELECT gen_random_uuid(), 1, 'THB', '', 1, '2026-11-22', 'UTC', 0, 0, 0, 0, 0, 0, 100, 0, 100,
        0, max(entry_number), clock(), -1, 'epoch'
    FROM ledger_entry
"""
_LINK = """
    INSERT INTO payment_link (id, merchant_id, token, key, request_hash, title, currency,
        created_by)
    VALUES (gen_random_uuid(), 1, 'lnk_0123456789012345678901', gen_random_uuid(), '', 'Ticket',
        'THB', 'test')
"""
_BALANCE = """
    INSERT INTO ledger_entry (fact_id, leg, merchant_id, currency, fact, debit, credit, amount)
    VALUES (gen_random_uuid(), 'whole', 1, 'THB', 'adjustment', 'bank', 'merchant_payable:1',
        1000000000)
"""
_PAYOUTS = (
    "merchant,amount,currency,chain,reference,paid_on\n1,2500.00,THB,,FT26112300018,2026-11-23\n"
)
_NEED_APPROVAL = {
    "operator.issue",
    "operator.extend",
    "operator.unblock",
    "account.add",
    "chain.add-contract",
    "chain.add-factory",
}
_NEED_APPROVAL |= {
    "chain.set-token",
    "payment.end",
    "refund.resend",
    "ledger.adjust",
    "payer.erase",
}
_NEED_APPROVAL |= {"refund.address-link"}
#: Options that need approval for any command.
_OPTIONS_NEED_APPROVAL = {"--refunder", "--sweeper", "--credentials", "--base-url"}
#: Operations that need approval when the page's merchant is active.
_NEED_APPROVAL_IF_ACTIVE = {"tax.set", "tax.remove", "method.add"}
_OPTIONS_NEED_APPROVAL_IF_ACTIVE = {"--public-rpc-url"}
_ADDRESS = f"0x{20 * '7a'}"
_GETADDRINFO = socket.getaddrinfo


@pytest.fixture
def terminal(settings: Settings, tmp_path: Path) -> Iterator[Terminal]:
    """A terminal of an installation outside the sandbox. The hosts on the page resolve."""
    (tmp_path / "credentials.json").write_bytes(_CREDENTIALS)
    (tmp_path / "november.csv").write_text(",".join(HEADER))
    (tmp_path / "payouts.csv").write_text(_PAYOUTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(socket, "getaddrinfo", _resolve)
        outside = {"sandbox": False, "gateway_origins": _UNREACHABLE_URL}
        yield Terminal(settings.model_copy(update=outside), patch)


@pytest.fixture
def node_url() -> Iterator[str]:
    """A node with the page's contract."""
    with contract_node() as url:
        yield url


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that were performed, in order."""
    operations: list[str] = []
    submit = Service.submit

    async def record(self: Service, operation: Any, actor: Actor, *arguments: Any) -> Any:
        operations.append(operation.action)
        return await submit(self, operation, actor, *arguments)

    monkeypatch.setattr(Service, "submit", record)
    return operations


_UNREACHABLE_URL = "https://127.0.0.1:9"  # replaces the gateway's address on the page
#: Exit statuses other than 0. The check fails, because the gateway is unreachable.
_STATUSES = {"account.check": 1}
#: Commands that print nothing if no provider has a problem.
_OFTEN_EMPTY = {"provider.health", "provider.errors"}


def _commands() -> list[list[str]]:
    pages = (section(_PAGE, "## Reference"), section(_REFUNDS, "## Commands"))
    commands = [span for text in pages for span in spans(text) if span.startswith("payintent ")]
    return [words for item in commands if (words := shlex.split(item)[1:])[0] not in _SKIPPED]


def _name(words: list[str]) -> str:
    return ".".join(words[: 1 if words[0] in _SINGLE_WORDS else 2])


def test_the_ledger_page_uses_commands_and_a_file_from_the_commands_page() -> None:
    ledger_page = page("docs/operate/ledger.md")
    lines = [line for block in blocks(ledger_page, "sh") for line in block.splitlines()]
    lines += [span for span in spans(ledger_page) if span.startswith("payintent ")]
    assert set(lines) - set(spans(section(_PAGE, "## Reference"))) == set()
    assert blocks(ledger_page, "csv") == [_PAYOUTS]


def test_the_examples_run_in_order_and_perform_the_operations_that_they_name(
    terminal: Terminal, performed: list[str], settings: Settings, node_url: str
) -> None:
    people = _People(terminal)
    for words in _commands():
        name = _name(words)
        if name == "chain.add-contract":
            terminal.set_endpoints(with_node(settings, node_url))
        terminal.set_mail_server("mail.example.com" if "--mail-receipts" in words else "")
        asyncio.run(_arrange(settings, name))
        people.arrange(name)
        actual_words = asyncio.run(_substitute_identifier(settings, name, words))
        before = len(performed)
        result = people.run(name, actual_words)
        assert (result.status, result.err) == (_STATUSES.get(name, 0), ""), (actual_words, result)
        has_output = bool(result.out or result.raw)
        assert has_output or name in _OFTEN_EMPTY, actual_words
        expected = [] if name in _WITHOUT_OPERATIONS or "--dry-run" in actual_words else [name]
        approvals = ["approval.approve"] if people.needs_approval(name, actual_words) else []
        assert performed[before:] == expected + approvals, actual_words
        people.record(name, result)
    assert set(performed) == set(OPERATIONS) | {"reconcile"}


@dataclass
class _People:
    """Ada, who follows the page, and Alan, who approves her proposals."""

    terminal: Terminal
    tokens: list[str] = field(default_factory=list[str])
    is_merchant_active: bool = False  # the merchant on the page

    @property
    def has_approver(self) -> bool:
        return len(self.tokens) > 1

    def needs_approval(self, name: str, words: list[str]) -> bool:
        is_exempt = not {"--sweep-value", "--surplus-from"}.isdisjoint(words)
        always = (
            name in _NEED_APPROVAL and not is_exempt
        ) or not _OPTIONS_NEED_APPROVAL.isdisjoint(words)
        now = self.is_merchant_active and (
            name in _NEED_APPROVAL_IF_ACTIVE
            or not _OPTIONS_NEED_APPROVAL_IF_ACTIVE.isdisjoint(words)
        )
        return self.has_approver and (always or now)

    def arrange(self, name: str) -> None:
        """Create a pending proposal."""
        if name in {"approval.show", "approval.approve", "approval.reject"}:
            self.terminal.become(self.tokens[0])
            extend = ("operator", "extend", self.tokens[1].split("_")[1], "--why", "she asked")
            assert self.terminal.run(*extend).status == 3

    def run(self, name: str, words: list[str]) -> CommandResult:
        if self.needs_approval(name, words):
            tokens = (self.tokens[0], self.tokens[1])
            return self.terminal.run_approved(tokens, *words, stdin=_CREDENTIALS)
        if self.has_approver:
            self.terminal.become(self.tokens[1 if name == "approval.approve" else 0])
        return self.terminal.run(*words, stdin=_CREDENTIALS)

    def record(self, name: str, result: CommandResult) -> None:
        """Store displayed tokens, and whether the merchant is active."""
        self.is_merchant_active |= name == "merchant.activate"
        token = re.search(r"\bop_\w+", result.out)
        if name == "operator.issue" and not self.has_approver:
            assert token
            self.tokens.append(token[0])
        elif name == "operator.replace":
            assert token
            self.tokens[0] = token[0]


async def _arrange(settings: Settings, name: str) -> None:
    """Create events for the commands about events."""
    if name in _PREPARATIONS:
        await _PREPARATIONS[name](settings)
    elif name in _SETUP_SQL:
        connection = await asyncpg.connect(settings.database_url)
        await connection.execute(_SETUP_SQL[name])
        await connection.close()


def _world(service: Service) -> World:
    """Return the first object of each kind that the commands have created."""
    values: dict[str, Any] = dict.fromkeys(("api_key", "callback_secret"), "")
    values |= dict.fromkeys(("merchant_id", "account_id", "card", "transfer"), 1)
    return World(service=service, gateway=FakeGateway(), **values)


async def _create_cancelled_payment(settings: Settings) -> None:
    service = await open_service(settings, {})
    world = _world(service)
    payment = await world.create()
    await record_final_logs(world, log_of(None), log_of(None))
    async with service.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    await service.close()


async def _create_payment(settings: Settings) -> None:
    """Create a pending payment."""
    service = await open_service(settings, {})
    await _world(service).create()
    await service.close()


async def _create_paid_payment(settings: Settings) -> None:
    """Create a payment and pay it at the gateway."""
    world = _world(await open_service(settings, {"simulator": FakeGateway()}))
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(session.quote.total_minor))
    await world.service.close()


async def _create_cancelled_payer(settings: Settings) -> None:
    """Create a payer with a single payment, and cancel the payment without an event."""
    world = _world(await open_service(settings, {}))
    await world.cancelled(payer_uid="buyer-9")
    await world.service.close()


async def _create_stranded_payment(settings: Settings) -> None:
    """Create a payment past its deadline on an unwatched chain."""
    world = _world(await open_service(settings, {"simulator": FakeGateway()}))
    await strand_payment(world)
    await world.service.close()


async def _create_waiting_refunds(settings: Settings) -> None:
    """Create two refunds of unassigned coins that need approval and have no requester."""
    service = await open_service(settings, {})
    world = _world(service)
    await record_final_logs(world, log_of(None), log_of(None))
    rows = await world.rows("SELECT id, capture_id FROM money_case ORDER BY id DESC LIMIT 2")
    async with service.database.transaction() as tx:
        for row in rows:
            arguments = (row["id"], row["capture_id"], AUTO_REFUND, _ADDRESS)
            await refund_case(tx, *arguments)
    await service.close()


async def _substitute_identifier(settings: Settings, name: str, words: list[str]) -> list[str]:
    """Replace the made-up identifier on the page with an existing identifier."""
    queries = {
        "key.revoke": "SELECT public_id FROM api_key LIMIT 1",
        **dict.fromkeys(
            ("operator.set-role", "operator.extend", "operator.revoke"),
            "SELECT public_id FROM operator_token WHERE name = 'Grace'",
        ),
        **dict.fromkeys(
            ("operator.block", "operator.unblock"),
            "SELECT name FROM operator_identity",
        ),
        **dict.fromkeys(
            ("approval.show", "approval.approve", "approval.reject"),
            "SELECT id FROM proposal WHERE status = 'WAITING'",
        ),
        "payment.show": "SELECT id FROM payment",
        "payment.timeline": "SELECT id FROM payment",
        "quotes.explain": "SELECT id FROM payment",
        "payment.cancel": "SELECT id FROM payment WHERE status = 'PENDING'",
        "payment.refund": "SELECT id FROM payment WHERE status = 'PAID'",
        "payment.end": "SELECT id FROM payment WHERE status = 'PROCESSING'",
        "payment-link.deactivate": "SELECT id FROM payment_link",
        "case.show": "SELECT id FROM money_case",
        "case.resolve": "SELECT id FROM money_case WHERE status = 'OPEN'",
        "refund.show": "SELECT id FROM refund WHERE step = 'approval'",
        "refund.address-link": "SELECT id FROM refund WHERE step = 'address'",
        "refund.approve": "SELECT id FROM refund WHERE step = 'approval'",
        "refund.reject": "SELECT id FROM refund WHERE step = 'approval'",
        "refund.resend": "SELECT id FROM refund WHERE step = 'queued'",
        "payout.reverse": "SELECT id FROM payout",
        "gateway-payout.reverse": "SELECT id FROM gateway_payout",
        **dict.fromkeys(
            ("reconciliation.show", "reconciliation.retry"), "SELECT id FROM reconciliation_run"
        ),
        **dict.fromkeys(("statement.show", "statement.export"), "SELECT id FROM statement"),
        "webhooks.show": "SELECT id FROM event",
        "webhooks.replay": "SELECT id FROM event",
    }
    if name == "account.add":
        return [_UNREACHABLE_URL if word.startswith("https://") else word for word in words]
    if name not in queries:
        return words
    connection = await asyncpg.connect(settings.database_url)
    value = await connection.fetchval(queries[name])
    await connection.close()
    prefix = _PREFIXES.get(words[0])
    identifier = ids.format_id(prefix, value) if prefix else str(value)
    return [*words[:2], identifier, *words[3:]]


_FAILED_RUN = """
    INSERT INTO reconciliation_run (id, account_id, source, name, sha256, status, lease_until,
        problem, ended_at)
    SELECT gen_random_uuid(), min(id), 'folder', 'a.csv', '00', 'failed', clock(), 'no', clock()
    FROM provider_account
"""
#: SQL statements to run before a command, by its operation.
_SETUP_SQL = {
    "refund.address-link": PAID_BY_DEPOSIT,
    "operator.block": _SIGN_IN,
    "payment-link.deactivate": _LINK,
    "payout.record": _BALANCE,
    "statement.list": _STATEMENT,
    "reconciliation.list": _FAILED_RUN,
    # The page's settlement file is empty, so no capture may be missing from it.
    "reconcile": "UPDATE capture SET captured_at = '2026-01-01T00:00:00Z'",
    "refund.resend": "UPDATE refund SET next_at = NULL WHERE step = 'queued'",
    "webhooks.replay-missed": """
        UPDATE delivery SET state = 'dead';
        UPDATE event SET occurred_at = '2026-11-21T08:30:00Z'
    """,
}
#: Preparations to make before a command, by its operation.
_PREPARATIONS = {
    "payment.search": _create_cancelled_payment,
    "payment.cancel": _create_payment,
    "payment.refund": _create_paid_payment,
    "payment.end": _create_stranded_payment,
    "payer.erase": _create_cancelled_payer,
    "refund.show": _create_waiting_refunds,
}


async def test_the_examples_for_the_operator_port_work(
    operator: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    monkeypatch.setattr(socket, "getaddrinfo", _resolve)
    [snippet] = examples(page("docs/operate/operators.md"), "sh", "call the operator port")
    url = "http://127.0.0.1:8083"
    assert snippet.count(url) == snippet.count("curl -s ") == 4
    script = snippet.replace(url, operator.base).replace("curl -s ", "curl -sf ")
    result = await asyncio.to_thread(
        subprocess.run,
        [shutil.which("bash") or "bash", "-ec", script],
        env={"PATH": os.environ["PATH"], "OPERATOR_TOKEN": await world.operator_token("Ada")},
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    lines = await world.rows("SELECT who, why, action FROM audit WHERE who = 'Ada'")
    assert sorted((line["why"], line["action"]) for line in lines) == [
        ("ticket 12", "approval.propose"),
        ("ticket 12", "limit.set"),
    ]
    [proposal] = await world.perform(ListApprovals())
    assert proposal.action == "merchant.set-callback-url"
    assert "https://shop.example.com/hooks" in proposal.changes[0]


def _resolve(host: Any, *arguments: Any, **options: Any) -> Any:
    """Resolve the host names on the page, which do not exist."""
    is_example = isinstance(host, bytes) and host.endswith(b".example.com")
    return _GETADDRINFO("93.184.216.34" if is_example else host, *arguments, **options)
