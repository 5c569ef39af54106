"""Print operation results: lists as tables, records with one field per line.

Operations that need a different format have a function here.
"""

import base64
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import typer

from payintent.cli.common import fail, print_record, print_table, to_one_line, wrap_at_terminal
from payintent.core.money import format_rate
from payintent.operators.operation import AnyOperation, to_json_value
from payintent.runtime.json_format import format_timestamp

if TYPE_CHECKING:  # a command imports only its own group's operations
    from payintent.accounting.statements_operations import StatementText
    from payintent.approvals.operations import ApprovalResult
    from payintent.cases.list_store import CaseDetails
    from payintent.chains.operations import ChainView
    from payintent.fraud.model import FraudRule
    from payintent.merchants.access_operations import ClearRateLimit
    from payintent.merchants.model import Merchant, PaymentMethod
    from payintent.merchants.operations import CreatedMerchant, CreateMerchant
    from payintent.payment_history.timeline import TimelineEntry, TimelinePage
    from payintent.quotes.operations import QuoteExplanation
    from payintent.webhooks.operations import EventAttempts, ReplayedEvents, ResendMissedEvents
    from payintent.webhooks.outbox_store import StoredAttempt

#: A record, list or text, and the table columns of a list (None: the operation's columns).
ResultBlock = tuple[Any, tuple[str, ...] | None]
_RESPONSE_CHARS_MAX = 200
_HEADING_COLUMNS = 36  # width of a timeline entry's time and kind
_CONTRACT = ("account_id", "chain", "address", "receiver", "deployed_block", "current")
_SUMS = ("type", "currency", "lines", "records", "gateway", "service", "ledger", "merchants")
_BALANCES = ("currency", "block", "receiver", "refunders", "ledger", "expected")
_UNSWEPT = ("chain", "currency", "deposits", "amount", "oldest_at")
_BATCH = ("chain", "created_at", "currency", "addresses", "result", "gas_cost", "tx_hash")
_TRANSFERS = ("tx_hash", "amount", "currency", "state", "is_mismatch", "sweep", "sweep_tx_hash")
#: The functions below format some of these columns.
_METHODS = ("id", "kind", "label", "provider", "currencies", "countries", "fee", "enabled")
_RULES = ("id", "kind", "merchant_id", "denies", "code", "level", "score")
_TOKEN = ("chain", "symbol", "address", "decimals", "approve_zero_first", "minimum", "enabled")


def print_result(operation: AnyOperation[Any], result: Any, *, as_json: bool) -> None:
    action = operation.action
    if action in REPLACEMENTS:
        result = REPLACEMENTS[action](operation, result)
    blocks: Iterator[ResultBlock] = iter([(result, None)])
    if action in LAYOUTS and not as_json:
        blocks = LAYOUTS[action](result)
    for number, (value, columns) in enumerate(blocks):
        if number:
            print()
        if isinstance(value, str):
            print(value)
        elif isinstance(value, list):
            names = operation.columns if columns is None else columns
            print_table(cast("list[object]", value), names, as_json=as_json)
        else:
            print_record(value, as_json=as_json)
    if (action == "account.check" and not result.works) or (action == "ledger.check" and result):
        raise typer.Exit(1)


def _format_secrets(_: "CreateMerchant", created_merchant: "CreatedMerchant") -> dict[str, object]:
    return {
        "id": created_merchant.merchant.id,
        "api_key": created_merchant.api_key,
        "callback_secret": created_merchant.callback_secret,
    }


def _format_cleared_limit(operation: "ClearRateLimit", _: None) -> dict[str, object]:
    return {"merchant_id": operation.merchant_id, "kind": operation.kind, "cleared": True}


def _require_replayed_events(
    _: "ResendMissedEvents", replayed_events: "ReplayedEvents"
) -> "ReplayedEvents":
    if not replayed_events.events:
        fail("no events to resend")
    return replayed_events


def _format_merchant(merchant: "Merchant") -> Iterator[ResultBlock]:
    fields: dict[str, Any] = to_json_value(merchant)
    market = fields.pop("market")
    yield fields | {name: market[name] or "all" for name in market}, ()


def _format_methods(methods: "list[PaymentMethod]") -> Iterator[ResultBlock]:
    rows = [
        asdict(method)
        | {
            "fee": f"{format_rate(method.fee_rate)} {method.fee_mode}",
            "countries": method.countries or "all",
        }
        for method in methods
    ]
    yield rows, _METHODS


def _format_fraud_rules(rules: "list[FraudRule]") -> Iterator[ResultBlock]:
    rows = [
        asdict(rule) | {"denies": rule.value or f"more than {rule.count_max} in {rule.window_s} s"}
        for rule in rules
    ]
    yield rows, _RULES


def _format_explanations(explanations: "list[QuoteExplanation]") -> Iterator[ResultBlock]:
    from payintent.quotes.operations import describe_countries

    yield (
        [asdict(row) | {"countries": describe_countries(row)} for row in explanations],
        None,
    )


def _format_chains(chains: "list[ChainView]") -> Iterator[ResultBlock]:
    yield chains, None
    contracts = [item for chain in chains for item in (*chain.contracts, *chain.factories)]
    yield contracts, _CONTRACT
    yield [token for chain in chains for token in chain.tokens], _TOKEN
    for field, columns in (("unswept", _UNSWEPT), ("sweep_batches", _BATCH)):
        rows = [
            {"chain": chain.slug} | to_json_value(item)
            for chain in chains
            for item in getattr(chain, field)
        ]
        if rows:
            yield rows, columns


def _format_chain(chain: "ChainView") -> Iterator[ResultBlock]:
    """Omit the lists, which `chain list` prints."""
    fields: dict[str, Any] = to_json_value(chain)
    omitted_fields = {"contracts", "factories", "tokens", "unswept", "sweep_batches"}
    yield {name: fields[name] for name in fields if name not in omitted_fields}, ()


def _format_case(case: "CaseDetails") -> Iterator[ResultBlock]:
    fields: dict[str, Any] = to_json_value(case)
    money = {
        "expected": case.expected and case.expected.text,
        "received": case.received and case.received.text,
    }
    heading_fields = {name: fields.pop(name) for name in ("id", "kind", "status")}
    yield heading_fields | money | {name: fields[name] for name in fields if name not in money}, ()


def _format_payment(payment: dict[str, Any]) -> Iterator[ResultBlock]:
    omitted_fields = {"sessions", "receipts", "deposits", "cases", "timeline"}
    metadata = bytes(payment["metadata"]).decode()
    payment_fields = {name: payment[name] for name in payment if name not in omitted_fields}
    yield payment_fields | {"metadata": metadata}, ()
    for deposit in payment["deposits"]:
        deposit_fields: dict[str, Any] = to_json_value(deposit)
        transfers = deposit_fields.pop("transfers")
        yield deposit_fields, ()
        if transfers:
            yield transfers, _TRANSFERS
    yield "\n".join(map(_format_entry, payment["timeline"])), ()


def _format_entry(entry: "TimelineEntry") -> str:
    timestamp = format_timestamp(entry.at)
    heading = f"{timestamp[:10]} {timestamp[11:]} {entry.what}"
    text = " ".join(filter(None, (entry.id, to_one_line(entry.text))))
    actor = f" (by {entry.who})" if entry.who else ""
    return wrap_at_terminal(f"{heading:{_HEADING_COLUMNS}} {text}{actor}", _HEADING_COLUMNS + 1)


def _format_timeline(page: "TimelinePage") -> Iterator[ResultBlock]:
    if page.entries:
        yield (
            "\n".join(line for entry in page.entries for line in _format_entry_with_bodies(entry)),
            (),
        )
    yield f"page {page.page} of {page.pages}", ()


def _format_entry_with_bodies(entry: "TimelineEntry") -> Iterator[str]:
    yield _format_entry(entry)
    if body := entry.details.get("body"):
        yield wrap_at_terminal(f"     body: {to_one_line(body)}", 5)
    if response := entry.details.get("answer"):
        yield wrap_at_terminal(f"     response: {to_one_line(response)[:_RESPONSE_CHARS_MAX]}", 5)


def _format_event(event: "EventAttempts") -> Iterator[ResultBlock]:
    yield event.event, ()
    if event.attempts:
        yield "\n".join(map(_format_attempt, event.attempts)), ()


def _format_attempt(attempt: "StoredAttempt") -> str:
    timestamp = format_timestamp(attempt.started_at)
    status = "" if attempt.status is None else f" HTTP {attempt.status}"
    heading = f"{attempt.number:3}  {timestamp[:10]} {timestamp[11:]}  {attempt.outcome}{status}"
    lines = [f"{heading}  {attempt.duration_ms} ms  {attempt.url or ''}".rstrip()]
    if attempt.detail and attempt.detail != f"HTTP {attempt.status}":
        lines.append(f"     {attempt.detail}")
    if attempt.answer:
        lines.append(f"     response: {to_one_line(attempt.answer)[:_RESPONSE_CHARS_MAX]}")
    return "\n".join(wrap_at_terminal(line, 5) for line in lines)


def _format_approved(approval_result: "ApprovalResult") -> Iterator[ResultBlock]:
    yield approval_result.approval, ()
    if approval_result.result:
        yield approval_result.result, ()


def _format_statement(statement: "StatementText") -> Iterator[ResultBlock]:
    """Print a text format unchanged. Write a PDF to standard output only if it is redirected."""
    if statement.format != "pdf":
        yield statement.text, None
    elif sys.stdout.isatty():
        fail("a PDF cannot be printed on a terminal: redirect the output with > statement.pdf")
    else:
        sys.stdout.buffer.write(base64.b64decode(statement.text))


#: Functions that replace a result before it is printed, by action.
REPLACEMENTS: dict[str, Callable[[Any, Any], object]] = {
    "merchant.create": _format_secrets,
    "limit.clear": _format_cleared_limit,
    "webhooks.replay-missed": _require_replayed_events,
}
#: Functions that format a result for people, by action. JSON output contains the whole result.
LAYOUTS: dict[str, Callable[[Any], Iterator[ResultBlock]]] = {
    "merchant.show": _format_merchant,
    "merchant.profile": _format_merchant,
    "merchant.set-callback-url": _format_merchant,
    "merchant.set-refund-threshold": _format_merchant,
    "merchant.set-deposit-tolerance": _format_merchant,
    "method.list": _format_methods,
    "fraud.list": _format_fraud_rules,
    "chain.list": _format_chains,
    "chain.set": _format_chain,
    "chain.sweep-now": _format_chain,
    "case.show": _format_case,
    "payment.show": _format_payment,
    "payment.timeline": _format_timeline,
    "quotes.explain": _format_explanations,
    "webhooks.show": _format_event,
    "approval.approve": _format_approved,
    "reconciliation.show": lambda run: iter(
        [(run.run, None), (run.sums, _SUMS), (run.balances, _BALANCES)]
    ),
    "reconciliation.retry": lambda run: iter([(run.run, None)]),
    "statement.export": _format_statement,
}
