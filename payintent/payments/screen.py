"""Screen payments for fraud when they are created and when their checkouts are used."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec

from payintent.core.addresses import make_client_address_key
from payintent.db.database import Database, Tx
from payintent.fraud import store as fraud_store
from payintent.fraud.model import (
    FraudDenial,
    FraudDeniedError,
    FraudRule,
    FraudRuleKind,
    FraudSubject,
)
from payintent.fraud.policy_cache import PolicyCache
from payintent.mail.message import to_comparable
from payintent.payments import idempotency_store
from payintent.payments.create import (
    OPERATION,
    CreatedPayment,
    PaymentCreator,
    replay_used_key,
)
from payintent.payments.idempotency_store import FirstRequest
from payintent.payments.model import CreatePaymentRequest, Payment, PaymentStatus
from payintent.runtime.encryption import Encryption
from payintent.runtime.log import get_logger

_log = get_logger("screen")


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudScreening:
    database: Database
    policies: PolicyCache
    encryption: Encryption
    creator: PaymentCreator

    async def create_payment(
        self,
        request: CreatePaymentRequest,
        attach: Callable[[Tx, UUID], Awaitable[None]] | None = None,
    ) -> CreatedPayment:
        """Screen a create request, then create the payment; for `attach`, see `PaymentCreator`.

        A denial is stored with the key and raised as `FraudDeniedError`. If the key already has a
        result, the result is returned or raised instead.
        """
        rules = await self.policies.get_rules()
        if not rules:
            return await self.creator.create(request, attach=attach)
        subject = FraudSubject(
            merchant_id=request.merchant_id,
            payer_uid=request.payer_uid,
            email=_normalize_email(request.payer_email),
            country=request.country,
        )
        velocity_rules = rules.list_velocity_rules(
            FraudRuleKind.PAYER_VELOCITY, request.merchant_id
        )

        async def check(tx: Tx) -> None:
            counts = await self._count_payments(tx, velocity_rules, subject)
            _raise_if_denied(rules.evaluate(replace(subject, counts=counts)))

        try:
            if not velocity_rules:
                _raise_if_denied(rules.evaluate(subject))
            return await self.creator.create(request, check if velocity_rules else None, attach)
        except FraudDeniedError as error:
            if error.replayed:
                raise
            return await self._store_denial(request, error.denial)

    async def screen_checkout(
        self,
        payment: Payment,
        viewer_country: str | None,
        address: str | None,
        email: str | None = None,
    ) -> None:
        """Screen the buyer of a checkout. Raises `FraudDeniedError` if a rule matches."""
        rules = await self.policies.get_rules()
        if not rules:
            return
        subject = FraudSubject(
            merchant_id=payment.merchant_id,
            payer_uid=payment.payer_uid,
            email=_normalize_email(email or payment.payer_email),
            country=viewer_country,
            address=address,
        )
        await self._deny_checkout(payment, rules.evaluate(subject))

    async def screen_selection(self, payment: Payment, address: str | None) -> None:
        """Count a selection from an address. Raises `FraudDeniedError` if a rule denies it."""
        rules = await self.policies.get_rules()
        velocity_rules = rules.list_velocity_rules(
            FraudRuleKind.ADDRESS_VELOCITY, payment.merchant_id
        )
        if not velocity_rules or address is None:
            return
        digest = self.encryption.digest(f"address:{make_client_address_key(address)}")
        async with self.database.transaction() as tx:
            await fraud_store.lock_counter(tx, digest)
            subject = FraudSubject(
                merchant_id=payment.merchant_id,
                payer_uid=payment.payer_uid,
                counts={
                    rule.id: await fraud_store.count_attempts(
                        tx, digest, rule.merchant_id, rule.window_s or 0, rule.count_max or 1
                    )
                    for rule in velocity_rules
                },
            )
            denial = rules.evaluate(subject)
            if denial is None:
                await fraud_store.add_attempt(tx, digest, payment.merchant_id)
        await self._deny_checkout(payment, denial)

    async def _count_payments(
        self, tx: Tx, velocity_rules: Iterable[FraudRule], subject: FraudSubject
    ) -> dict[int, int]:
        """Count a payer's payments for each rule. Blocks the payer's concurrent create requests."""
        name = f"payer:{subject.merchant_id}:{subject.payer_uid}"
        await fraud_store.lock_counter(tx, self.encryption.digest(name))
        return {
            rule.id: await fraud_store.count_payments(
                tx,
                subject.merchant_id,
                subject.payer_uid,
                rule.window_s or 0,
                rule.count_max or 1,
                list(PaymentStatus),
            )
            for rule in velocity_rules
        }

    async def _store_denial(
        self, request: CreatePaymentRequest, denial: FraudDenial
    ) -> CreatedPayment:
        """Store a denial with its key and raise it, or return the key's earlier result."""
        first_request = FirstRequest(
            request_hash=request.request_hash, denial=msgspec.json.encode(denial).decode()
        )
        async with self.database.transaction() as tx:
            is_new = await idempotency_store.claim_key(
                tx, request.merchant_id, OPERATION, request.key, first_request
            )
            if is_new:
                await fraud_store.record_denial(
                    tx, tx.id_generator.new_id(), request.merchant_id, None, denial
                )
        if not is_new:
            return await replay_used_key(self.database, request)
        _log.info("denied", merchant=request.merchant_id, rule=denial.rule, code=denial.code)
        raise FraudDeniedError(denial)

    async def _deny_checkout(self, payment: Payment, denial: FraudDenial | None) -> None:
        if denial is None:
            return
        denial_id = self.database.id_generator.new_id()
        await fraud_store.record_denial(
            self.database, denial_id, payment.merchant_id, payment.id, denial
        )
        _log.info("denied", merchant=payment.merchant_id, rule=denial.rule, code=denial.code)
        raise FraudDeniedError(denial)


def _normalize_email(email: str | None) -> str | None:
    return email and to_comparable(email)


def _raise_if_denied(denial: FraudDenial | None) -> None:
    if denial is not None:
        raise FraudDeniedError(denial)
