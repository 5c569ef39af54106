"""The Stripe emulator's balance transactions, with fees, disputes and payouts."""

import secrets
import time
from typing import Any, cast

from localstripe.resources import store

from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.model import (
    AccountRecords,
    Json,
    RefusalError,
    missing,
)

_LIMIT, _LIMIT_MAX = 10, 100
_FEE_THOUSANDTHS, _FEE_FIXED = 29, 30  # per charge; the fee that Stripe charges for many cards
_FEE_DISPUTE = 1_500  # charged together with the disputed amount, and never returned
_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


class Balance:
    """The balance transactions and payouts of all accounts."""

    def __init__(self, records: AccountRecords, disputes: Disputes) -> None:
        self._records = records
        self._disputes = disputes
        self._payouts: dict[str, Json] = {}
        self._extra: list[Json] = []  # the transactions of payouts
        self._paid_out: dict[str, str] = {}  # payout ids by transaction id

    def list_transactions(self, secret: str, query: dict[str, str]) -> Json:
        """Return a page of an account's transactions, newest first."""
        self._records.check(secret)
        matches = [txn for txn in self._of(secret) if self._matches(txn, query)]
        matches.sort(key=lambda txn: (txn["created"], txn["id"]), reverse=True)
        if (after := query.get("starting_after")) is not None:
            names = [txn["id"] for txn in matches]
            if after not in names:
                raise missing(after)
            matches = matches[names.index(after) + 1 :]
        limit = _read_limit(query)
        page = matches[:limit]
        if query.get("expand[]", query.get("expand[0]")) == "data.source":
            page = [txn | {"source": self._source(txn["source"])} for txn in page]
        return {
            "object": "list",
            "url": "/v1/balance_transactions",
            "has_more": len(matches) > limit,
            "data": page,
        }

    def pay_out(self, secret: str, currency: str) -> Json:
        """Pay out an account's remaining balance in a currency, as Stripe does daily."""
        self._records.check(secret)
        settled = [
            txn
            for txn in self._of(secret)
            if txn["currency"] == currency and txn["id"] not in self._paid_out
        ]
        amount = sum(txn["net"] for txn in settled)
        if amount == 0:
            raise RefusalError(400, "There is nothing to pay out.", code="balance_insufficient")
        payout: Json = {
            "id": f"po_{secrets.token_hex(12)}",
            "object": "payout",
            "amount": amount,
            "currency": currency,
            "automatic": True,
            "status": "paid",
            "created": int(time.time()),
        }
        self._payouts[payout["id"]] = payout
        self._records.owners[payout["id"]] = secret
        own = _transaction(-amount, currency, ("payout", "payout"), payout["id"])
        self._extra.append(own)
        self._paid_out |= dict.fromkeys((txn["id"] for txn in (*settled, own)), payout["id"])
        return payout

    def fail(self, payout_id: str) -> Json:
        """Fail a payout, as a bank may do days later."""
        payout = self._payouts.get(payout_id)
        if payout is None:
            raise missing(payout_id)
        if payout["status"] != "paid":
            raise RefusalError(400, "The payout has already failed.")
        payout["status"] = "failed"
        self._extra.append(
            _transaction(
                payout["amount"],
                payout["currency"],
                ("payout_failure", "payout_reversal"),
                payout_id,
            )
        )
        return payout

    def _of(self, secret: str) -> list[Json]:
        """Return all transactions of an account."""
        of_disputes = [
            _transaction(
                amount,
                currency,
                ("adjustment", category),
                dispute,
                at=at,
                name=name,
                fee=_FEE_DISPUTE if category == "dispute" else 0,
            )
            for name, dispute, category, amount, currency, at in self._disputes.movements()
        ]
        owners = self._records.owners
        return [
            txn
            for txn in (*_localstripes(), *of_disputes, *self._extra)
            if owners.get(_owned(txn["source"], self._disputes), secret) == secret
        ]

    def _matches(self, txn: Json, query: dict[str, str]) -> bool:
        payout = query.get("payout")
        return (
            int(query.get("created[gte]", 0)) <= txn["created"]
            and txn["created"] < int(query.get("created[lt]", 2**62))
            and (payout is None or self._paid_out.get(txn["id"]) == payout)
            and query.get("type", txn["type"]) == txn["type"]
            and query.get("currency", txn["currency"]) == txn["currency"]
            and query.get("source", txn["source"]) == txn["source"]
        )

    def _source(self, name: str) -> Json:
        if name in self._payouts:
            return self._payouts[name]
        if (dispute := self._disputes.find(name)) is not None:
            return dispute
        kind = "charge" if name.startswith("ch_") else "refund"
        exported: Json = _objects[f"{kind}:{name}"]._export()  # noqa: SLF001 - localstripe has no public method
        return exported | ({"amount_captured": exported["amount"]} if kind == "charge" else {})


def _localstripes() -> list[Json]:
    matches: list[Any] = [
        txn for name, txn in _objects.items() if name.startswith("balance_transaction:")
    ]
    return [
        _transaction(
            txn.amount,
            txn.currency,
            (txn.type, txn.reporting_category),
            txn.source,
            at=txn.created,
            name=txn.id,
            fee=_fee(txn.amount) if txn.type == "charge" else 0,
        )
        for txn in matches
    ]


def _owned(source: str, disputes: Disputes) -> str:
    """Return the owner of a transaction: its payment intent or its payout."""
    if (dispute := disputes.find(source)) is not None:
        return str(dispute["payment_intent"])
    kind = "charge" if source.startswith("ch_") else "refund"
    source_object = _objects.get(f"{kind}:{source}")
    return source if source_object is None else str(source_object.payment_intent)


def _fee(amount: int) -> int:
    return min(amount, amount * _FEE_THOUSANDTHS // 1_000 + _FEE_FIXED)


def _transaction(
    amount: int,
    currency: str,
    what: tuple[str, str],
    source: str,
    *,
    at: int | None = None,
    name: str = "",
    fee: int = 0,
) -> Json:
    kind, category = what
    at = int(time.time()) if at is None else at
    details = {"amount": fee, "currency": currency, "type": "stripe_fee", "description": "fee"}
    return {
        "id": name or f"txn_{secrets.token_hex(12)}",
        "object": "balance_transaction",
        "amount": amount,
        "available_on": at,
        "balance_type": "payments",
        "created": at,
        "currency": currency,
        "description": None,
        "exchange_rate": None,
        "fee": fee,
        "fee_details": [details] if fee else [],
        "net": amount - fee,
        "reporting_category": category,
        "source": source,
        "status": "available",
        "type": kind,
    }


def _read_limit(query: dict[str, str]) -> int:
    text = query.get("limit", str(_LIMIT))
    if not text.isdecimal() or not 1 <= int(text) <= _LIMIT_MAX:
        raise RefusalError(400, "limit must be from 1 to 100", param="limit")
    return int(text)
