"""Fraud screening: before a payment is created, and whenever its checkout is used."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec

from payintent.domain.errors import Code, Refused
from payintent.domain.fraud import (
    Denial,
    Denied,
    FraudRule,
    RuleKind,
    Subject,
    concerning,
    judge,
)
from payintent.domain.payment import Payment
from payintent.lifecycle.create import OPERATION, Created, CreateRequest, replay
from payintent.lifecycle.mint import Mint
from payintent.lifecycle.policies import Policies
from payintent.log import get
from payintent.storage import idempotency, policies
from payintent.storage.database import Database
from payintent.storage.idempotency import First
from payintent.storage.sealed import Secrets

_log = get("screen")
_MESSAGE = "this payment cannot be made"  # whoever is blocked learns no more than the code


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What screening works with."""

    database: Database
    policies: Policies
    secrets: Secrets
    mint: Mint

    async def create(self, request: CreateRequest) -> Created | None:
        """Screen a create on what the merchant sent; None lets it pass.

        A key that has done its work replays it; else a denial is kept under the key (`Denied`).
        """
        rules = concerning(await self.policies.rules(), request.merchant_id)
        if not rules:
            return None
        subject = Subject(
            merchant_id=request.merchant_id,
            payer_uid=request.payer_uid,
            email=request.payer_email,
            country=request.country,
        )
        counts = await self._payer_counts(rules, subject)
        denial = judge(rules, replace(subject, counts=counts))
        if denial is None:
            return None
        found = await replay(self.database, request.merchant_id, request.key, request.request_hash)
        return found or await self._deny_create(request, denial)

    async def checkout(
        self, payment: Payment, viewer: str | None, address: str | None, email: str | None = None
    ) -> None:
        """Screen whoever uses a checkout; `Denied` where a rule matches."""
        rules = concerning(await self.policies.rules(), payment.merchant_id)
        if not rules:
            return
        subject = Subject(
            merchant_id=payment.merchant_id,
            payer_uid=payment.payer_uid,
            email=email or payment.payer_email,
            country=viewer,
            address=address,
        )
        await self._deny_checkout(payment, judge(rules, subject))

    async def selection(self, payment: Payment, address: str | None) -> None:
        """Count a selection from an address; `Denied` where it has made too many."""
        rules = [
            rule
            for rule in concerning(await self.policies.rules(), payment.merchant_id)
            if rule.kind is RuleKind.ADDRESS_VELOCITY
        ]
        if not rules or address is None:
            return
        digest = self.secrets.digest(f"address:{address}")
        counts = {rule.id: await self._attempts(rule, digest) for rule in rules}
        subject = Subject(
            merchant_id=payment.merchant_id, payer_uid=payment.payer_uid, counts=counts
        )
        await self._deny_checkout(payment, judge(rules, subject))
        await policies.add_attempt(self.database, digest, payment.merchant_id)

    async def _payer_counts(self, rules: Iterable[FraudRule], subject: Subject) -> dict[int, int]:
        return {
            rule.id: await policies.payments_of(
                self.database,
                subject.merchant_id,
                subject.payer_uid,
                rule.window_s or 0,
                rule.count_max or 1,
            )
            for rule in rules
            if rule.kind is RuleKind.PAYER_VELOCITY
        }

    async def _attempts(self, rule: FraudRule, digest: bytes) -> int:
        return await policies.attempts_of(
            self.database, digest, rule.merchant_id, rule.window_s or 0, rule.count_max or 1
        )

    async def _deny_create(self, request: CreateRequest, denial: Denial) -> Created:
        first = First(
            request_hash=request.request_hash,
            payment_id=None,
            country=None,
            denial=msgspec.json.encode(denial).decode(),
        )
        async with self.database.transaction() as tx:
            fresh = await idempotency.take(tx, request.merchant_id, OPERATION, request.key, first)
            if fresh:
                await policies.decide(tx, self.mint.id(), request.merchant_id, None, denial)
        if not fresh:  # another request with this key was faster
            found = await replay(
                self.database, request.merchant_id, request.key, request.request_hash
            )
            if found is None:
                raise Refused(
                    Code.CONFLICT, "the Idempotency-Key has just expired", retry_after_s=1
                )
            return found
        _log.info("denied", merchant=request.merchant_id, rule=denial.rule, code=denial.code)
        raise Denied(denial)

    async def _deny_checkout(self, payment: Payment, denial: Denial | None) -> None:
        if denial is None:
            return
        async with self.database.transaction() as tx:
            decision_id: UUID = self.mint.id()
            await policies.decide(tx, decision_id, payment.merchant_id, payment.id, denial)
        _log.info("denied", merchant=payment.merchant_id, rule=denial.rule, code=denial.code)
        raise Denied(denial)


def denial_fields(denial: Denial) -> dict[str, Any]:
    """Give the envelope of spec section 7.4, alone in its body."""
    return {
        "fds": {
            "outcome": "DENY",
            "code": denial.code,
            "message": _MESSAGE,
            "risk_level": denial.level,
            "risk_score": denial.score,
            "rule": denial.rule,
        }
    }
