"""How the results of operations are printed: lists as tables, others a line for each field.

An operation whose result is printed otherwise has its function here.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, cast
from uuid import UUID

import typer

from payintent.cli.common import fail, print_record, print_table
from payintent.domain.fraud import FraudRule
from payintent.domain.merchant import Merchant, PaymentMethod
from payintent.domain.price import format_rate
from payintent.operations.accounts import AccountCheckResult
from payintent.operations.approvals import Approve, Approved
from payintent.operations.base import ChangeOperation, ReadOperation
from payintent.operations.chain_views import ChainView
from payintent.operations.chains import ListChains, SetChain
from payintent.operations.fraud import ListFraudRules
from payintent.operations.json_values import to_json_value
from payintent.operations.merchants import (
    CreatedMerchant,
    CreateMerchant,
    SetCallbackUrl,
    SetMerchantProfile,
    ShowMerchant,
)
from payintent.operations.payment_methods import ListPaymentMethods
from payintent.operations.rate_limits import ClearRateLimit
from payintent.operations.webhooks import ReplayMissedEvents

#: A record, or a list with the columns of its table.
Part = tuple[Any, tuple[str, ...]]
_CONTRACT = ("account_id", "chain", "address", "receiver", "deployed_block", "current")
_TOKEN = ("chain", "symbol", "address", "decimals", "approve_zero_first", "minimum", "enabled")


def print_result(
    operation: ReadOperation[Any] | ChangeOperation[Any], result: Any, *, as_json: bool
) -> None:
    """Print what an operation gave, for people or as JSON."""
    kind = type(operation)
    if kind in _REPLACED:
        result = _REPLACED[kind](operation, result)
    parts: Iterator[Part] = iter([(result, operation.columns)])
    if kind in _FOR_PEOPLE and not as_json:
        parts = _FOR_PEOPLE[kind](result)
    for number, (value, columns) in enumerate(parts):
        if number:
            print()
        if isinstance(value, list):
            print_table(cast("list[object]", value), columns, as_json=as_json)
        else:
            print_record(value, as_json=as_json)
    if isinstance(result, AccountCheckResult) and not result.works:
        raise typer.Exit(1)


def _secrets(_: CreateMerchant, created: CreatedMerchant) -> dict[str, object]:
    return {
        "id": created.merchant.id,
        "api_key": created.api_key,
        "callback_secret": created.callback_secret,
    }


def _cleared_limit(cleared: ClearRateLimit, _: None) -> dict[str, object]:
    return {"merchant_id": cleared.merchant_id, "kind": cleared.kind, "cleared": True}


def _replayed_events(_: ReplayMissedEvents, event_ids: list[UUID]) -> list[dict[str, UUID]]:
    if not event_ids:
        fail("nothing to send again")
    return [{"event_id": event_id} for event_id in event_ids]


def _merchant(merchant: Merchant) -> Iterator[Part]:
    """Show where a merchant takes payments as two lines of words."""
    fields: dict[str, Any] = to_json_value(merchant)
    market = fields.pop("market")
    yield fields | {name: market[name] or "all" for name in market}, ()


def _methods(methods: list[PaymentMethod]) -> Iterator[Part]:
    """Show fees and countries as words."""
    rows = [
        asdict(method)
        | {
            "fee": f"{format_rate(method.fee_rate)} {method.fee_mode}",
            "countries": method.countries or "all",
        }
        for method in methods
    ]
    yield rows, ListPaymentMethods.columns


def _fraud_rules(rules: list[FraudRule]) -> Iterator[Part]:
    """Show what each rule denies in words."""
    rows = [
        asdict(rule) | {"denies": rule.value or f"more than {rule.count_max} in {rule.window_s} s"}
        for rule in rules
    ]
    yield rows, ListFraudRules.columns


def _chains(chains: list[ChainView]) -> Iterator[Part]:
    """Show contracts and tokens of all chains in tables of their own."""
    yield chains, ListChains.columns
    yield [contract for chain in chains for contract in chain.contracts], _CONTRACT
    yield [token for chain in chains for token in chain.tokens], _TOKEN


def _chain(chain: ChainView) -> Iterator[Part]:
    """Leave out contracts and tokens, which `chain list` shows."""
    fields: dict[str, Any] = to_json_value(chain)
    yield {name: fields[name] for name in fields if name not in {"contracts", "tokens"}}, ()


def _approved(approved: Approved) -> Iterator[Part]:
    """Show the approval, then what its operation gave."""
    yield approved.approval, ()
    if approved.result:
        yield approved.result, ()


#: What is printed in place of a result.
_REPLACED: dict[type, Callable[[Any, Any], object]] = {
    CreateMerchant: _secrets,
    ClearRateLimit: _cleared_limit,
    ReplayMissedEvents: _replayed_events,
}
#: What people are shown of a result that JSON has whole.
_FOR_PEOPLE: dict[type, Callable[[Any], Iterator[Part]]] = {
    ShowMerchant: _merchant,
    SetMerchantProfile: _merchant,
    SetCallbackUrl: _merchant,
    ListPaymentMethods: _methods,
    ListFraudRules: _fraud_rules,
    ListChains: _chains,
    SetChain: _chain,
    Approve: _approved,
}
