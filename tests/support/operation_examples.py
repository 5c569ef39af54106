"""A valid example of every operation, in an order in which all of them can run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec

from payintent.accounting.payouts_operations import RecordGatewayPayout, RecordPayout
from payintent.approvals.operations import Approve
from payintent.chains.operations import AddContract
from payintent.core import ids
from payintent.core.access import Role
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import Gateway
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.operations import CreateMerchant
from payintent.onchain.operations import SetChain
from payintent.operations import OPERATIONS
from payintent.operators import identities_store
from payintent.operators.identities_store import NewSignIn
from payintent.operators.operation import Actor, AnyOperation, ChangeOperation
from payintent.operators.proposals_store import Proposal
from payintent.payments import captures_store as capture_store
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_merchant
from payintent.refunds import store as refund_store
from payintent.refunds.model import RefundStep
from payintent.refunds.store import NewRefund
from payintent.service import Service, open_service
from tests.payment_links.link_setup import make_link
from tests.support.contract_node import contract_node, with_node
from tests.support.contracts import CONTRACT, FACTORY, FORWARDER, RECEIVER, strand_payment
from tests.support.fakes import captured
from tests.support.world import World

ADA, ALAN = Actor("Ada", "ticket 7", Role.ADMIN), Actor("Alan", "agreed", Role.ADMIN)
HOOKS = "https://93.184.216.34/hooks"  # a public address, which needs no name resolution
_CALLBACK = {"callback_url": HOOKS, "allow_http": False}
SECRET = "a-credential-of-the-gateway"

#: Fields by action, in the table's order. `$name` stands for a value of the stage.
EXAMPLES: dict[str, dict[str, Any]] = {
    "merchant.create": {"name": "Third Shop", "methods": "all", **_CALLBACK},
    "merchant.list": {"name": "o", "limit": 10},
    "merchant.show": {"merchant_id": "$merchant"},
    "merchant.profile": {
        "merchant_id": "$merchant",
        "name": "Nimbus Books Ltd",
        "logo_url": "https://shop.example.com/logo.png",
        "accent_colour": "#0B5BD3",
        "terms_url": "https://shop.example.com/terms",
        "support_url": "https://shop.example.com/help",
        "return_url": "https://shop.example.com/thanks",
        "allowed_origins": ["https://shop.example.com"],
        "default_country": "JP",
        "locale": "ja",
        "tax_manager": "SERVICE",
        "tax_country": "merchant",
        "auto_refund": True,
        "mail_receipts": False,
    },
    "merchant.set-callback-url": {"merchant_id": "$merchant", **_CALLBACK},
    "merchant.set-refund-threshold": {
        "merchant_id": "$merchant",
        "currency": "THB",
        "above": "50000.00",
    },
    "merchant.set-deposit-tolerance": {"merchant_id": "$merchant", "percent": "0.5"},
    "merchant.rotate-secret": {"merchant_id": "$merchant", "overlap_s": 60},
    "merchant.secrets": {"merchant_id": "$merchant"},
    "merchant.checklist": {"merchant_id": "$merchant"},
    "merchant.activation": {"merchant_id": "$merchant"},
    "merchant.request": {
        "merchant_id": "$merchant",
        "countries": ["TH", "JP"],
        "currencies": ["THB", "JPY"],
        "contract": "archive/contracts/7",
        "kyc": "archive/kyc/7",
    },
    "merchant.apply": {"merchant_id": "$merchant"},
    "merchant.validate": {"merchant_id": "$merchant"},
    "merchant.activate": {"merchant_id": "$merchant"},
    "merchant.suspend": {"merchant_id": "$merchant"},
    "merchant.resume": {"merchant_id": "$merchant"},
    "merchant.invite": {
        "merchant_id": "$merchant",
        "email": "ann@example.com",
        "role": "developer",
    },
    "merchant.members": {"merchant_id": "$merchant"},
    "merchant.remove-member": {"merchant_id": "$merchant", "email": "ann@example.com"},
    "key.issue": {"merchant_id": "$merchant", "name": "second server"},
    "key.list": {"merchant_id": "$merchant"},
    "key.revoke": {"public_id": "$key"},
    "operator.issue": {"name": "Grace"},
    "operator.list": {},
    "operator.set-role": {"public_id": "$token", "role": "support"},
    "operator.extend": {"public_id": "$token", "days": 30},
    "operator.replace": {},
    "operator.revoke": {"public_id": "$token"},
    "operator.identities": {},
    "operator.block": {"name": "$identity"},
    "operator.unblock": {"name": "$identity"},
    "approval.list": {"status": "ALL", "limit": 5},
    "approval.show": {"approval_id": "$approval"},
    "approval.approve": {"approval_id": "$approval", "note": "as agreed"},
    "approval.reject": {"approval_id": "$other_approval", "note": "not this year"},
    "account.add": {
        "provider": "fake",
        "base_url": "https://gateway.example.com",
        "credentials": {"signing_secret": SECRET},
        "merchant_id": "$merchant",
        "name": "their own",
        "countries": ["TH", "JP"],
    },
    "account.list": {},
    "account.show": {"account_id": "$account"},
    "account.check": {"account_id": "$account"},
    "account.change": {
        "account_id": "$account",
        "name": "theirs",
        "base_url": "https://gateway.example.com/v2",
        "credentials": {"signing_secret": SECRET + "-2"},
        "countries": ["TH"],
    },
    "account.disable": {"account_id": "$account"},
    "account.enable": {"account_id": "$account"},
    "method.add": {
        "merchant_id": "$merchant",
        "account_id": "$account",
        "kind": "qr",
        "label": "QR",
        "currencies": ["THB"],
        "countries": ["TH"],
        "fee_mode": "EXCLUSIVE",
        "fee_rate": "0.015",
        "position": 3,
    },
    "method.list": {"merchant_id": "$merchant"},
    "method.change": {
        "method_id": "$method",
        "label": "Card, Apple Pay",
        "currencies": ["THB", "USD"],
        "countries": [],
        "fee_mode": "INCLUSIVE",
        "fee_rate": "0.03",
        "position": 1,
    },
    "method.disable": {"method_id": "$method"},
    "method.enable": {"method_id": "$method"},
    "provider.list": {},
    "provider.disable": {"provider": "fake"},
    "provider.enable": {"provider": "fake"},
    "provider.rename": {"provider": "fake", "wire_name": "acme"},
    "provider.health": {},
    "provider.errors": {},
    "tax.set": {"country": "TH", "rate": "0.07"},
    "tax.list": {},
    "tax.remove": {"country": "TH"},
    "restriction.add": {"type": "CRYPTO", "country": "CU"},
    "restriction.list": {},
    "restriction.lift": {"type": "CRYPTO", "country": "CU"},
    "fraud.add": {
        "kind": "EMAIL",
        "value": "@Spam.example",
        "merchant_id": "$merchant",
        "code": "SPAM",
        "level": "LOW",
        "score": 10,
    },
    "fraud.list": {},
    "fraud.remove": {"rule_id": "$rule"},
    "fraud.decisions": {"merchant_id": "$merchant", "limit": 5},
    "limit.set": {"merchant_id": "$merchant", "kind": "create", "per_s": 5, "burst": 7},
    "limit.list": {"merchant_id": "$merchant"},
    "limit.clear": {"merchant_id": "$merchant", "kind": "create"},
    "chain.list": {},
    "chain.set": {
        "chain": "native",
        "finality": "confirmations",
        "confirmations": 12,
        "instant_finality": False,
        "public_rpc_urls": ["https://rpc.example.com"],
        "explorer_urls": ["https://explorer.example.com"],
        "auto_refund_gas": 2_000_000,
        "sweep_count": 50,
        "sweep_after_s": 3600,
        "sweep_gas_price_max": "7.5",
        "transfer_fee_usd": "0.25",
    },
    "chain.sweep-now": {"chain": "native"},
    "chain.set-token": {
        "chain": "native",
        "symbol": "USDT",
        "address": CONTRACT,
        "decimals": 18,
        "approve_zero_first": False,
        "minimum": 10_000,
        "auto_refund_from": "2.5",
        "enabled": True,
    },
    "chain.add-contract": {
        "chain": "native",
        "address": CONTRACT,
        "receiver": RECEIVER,
        "deployed_block": 7,
        "merchant_id": "$merchant",
        "name": "their own",
    },
    "chain.add-factory": {
        "chain": "bsc",
        "address": FACTORY,
        "forwarder": FORWARDER,
        "receiver": RECEIVER,
        "deployed_block": 7,
        "merchant_id": "$merchant",
        "name": "their own",
    },
    "chain.retire-contract": {"account_id": "$contract"},
    "chain.resume": {"chain": "bsc", "block": 6},
    "case.list": {
        "merchant_id": "$old_merchant",
        "status": "ALL",
        "kind": "ORPHAN_CAPTURE",
        "limit": 5,
    },
    "case.show": {"case_id": "$case"},
    "case.resolve": {"case_id": "$case", "resolution": "dismiss", "note": "it went back"},
    "payment.list": {"merchant_id": "$old_merchant", "older_than": "1s", "limit": 5},
    "payment.search": {"text": "A-1", "merchant_id": "$old_merchant", "limit": 5},
    "payment.show": {"payment_id": "$payment"},
    "payment.timeline": {"payment_id": "$payment", "of": "gateway", "page": 1},
    "quotes.explain": {"payment_id": "$payment", "country": "TH"},
    "payment.cancel": {"payment_id": "$pending"},
    "payment.refund": {"payment_id": "$payment", "amount": "10.00", "reason": "a page is missing"},
    "payment.end": {"payment_id": "$stranded"},
    "payment-link.list": {"merchant_id": "$old_merchant", "limit": 5},
    "payment-link.deactivate": {"link_id": "$link"},
    "refund.list": {
        "merchant_id": "$old_merchant",
        "payment_id": "$payment",
        "status": "PENDING",
        "step": "approval",
        "limit": 5,
    },
    "refund.show": {"refund_id": "$refund"},
    "refund.address-link": {"refund_id": "$deposit_refund"},
    "refund.approve": {"refund_id": "$refund", "note": "the buyer asked for it by letter"},
    "refund.reject": {"refund_id": "$other_refund", "note": "asked for twice"},
    "refund.resend": {"refund_id": "$resting_refund", "note": "the gateway is back"},
    "refund.ask-first": {},
    "dispute.list": {"merchant_id": "$old_merchant", "status": "ALL", "limit": 5},
    "payer.export": {"merchant_id": "$old_merchant", "payer_uid": "buyer-1", "limit": 5},
    "payer.erase": {"merchant_id": "$old_merchant", "payer_uid": "buyer-6"},
    "retention.show": {},
    "ledger.show": {"merchant_id": "$old_merchant", "currency": "THB"},
    "ledger.check": {},
    "ledger.backfill": {},
    "ledger.adjust": {
        "debit": "bank",
        "credit": "fee_income",
        "amount_minor": "150",
        "currency": "THB",
        "note": "a fee that was paid by transfer",
    },
    "payout.record": {
        "merchant_id": "$old_merchant",
        "amount": "12.50",
        "currency": "THB",
        "reference": "transfer 17",
        "paid_on": "2026-11-24",
    },
    "payout.import": {
        "lines": [
            "merchant,amount,currency,chain,reference,paid_on",
            "1,30.00,THB,,transfer 18,2026-11-24",
        ],
    },
    "payout.list": {"merchant_id": "$old_merchant", "currency": "THB", "limit": 5},
    "payout.reverse": {"payout_id": "$payout", "note": "the bank sent it back"},
    "gateway-payout.record": {
        "account_id": "$account",
        "amount": "1112.50",
        "currency": "THB",
        "reference": "po_17",
        "fee": "46.11",
        "paid_on": "2026-11-24",
    },
    "gateway-payout.list": {"account_id": "$account", "currency": "THB", "limit": 5},
    "gateway-payout.reverse": {"payout_id": "$gateway_payout", "note": "it never came"},
    "reconciliation.list": {"account_id": "$account", "status": "failed", "limit": 5},
    "reconciliation.show": {"run_id": "$run"},
    "reconciliation.retry": {"run_id": "$run"},
    "statement.list": {
        "merchant_id": "$old_merchant",
        "currency": "THB",
        "since": "2026-11-01",
        "until": "2026-11-30",
        "limit": 5,
    },
    "statement.show": {"statement_id": "$statement"},
    "statement.export": {"statement_id": "$statement", "format": "jsonl"},
    "keyring.show": {},
    "keyring.rotate": {},
    "audit.list": {"merchant_id": "$merchant", "of": "merchant", "limit": 5},
    "webhooks.list": {"merchant_id": "$old_merchant", "state": "skipped", "limit": 5},
    "webhooks.endpoints": {"merchant_id": "$old_merchant", "limit": 5},
    "webhooks.show": {"event_id": "$event"},
    "webhooks.replay": {"event_id": "$event"},
    "webhooks.replay-missed": {"merchant_id": "$old_merchant", "since": "2020-01-01T00:00:00Z"},
}

#: Operations that always need another person's approval, and those that need it only over HTTP.
TWO_PEOPLE = frozenset(
    {
        "operator.issue",
        "operator.extend",
        "operator.unblock",
        "account.add",
        "account.change",
        "method.add",
        "method.change",
        "tax.set",
        "tax.remove",
        "chain.set",
        "chain.set-token",
        "chain.add-contract",
        "chain.add-factory",
        "payment.end",
        "refund.address-link",
        "refund.resend",
        "ledger.adjust",
        "payer.erase",
    }
)
TWO_OVER_HTTP = TWO_PEOPLE | {
    "key.issue",
    "merchant.create",
    "merchant.rotate-secret",
    "merchant.invite",
}
#: Changes that concern a merchant whose id is not among their fields.
ABOUT = {
    "key.revoke": "$merchant",
    "account.change": "$merchant",
    "account.enable": "$merchant",
    "account.disable": "$merchant",
    "method.change": "$merchant",
    "method.enable": "$merchant",
    "method.disable": "$merchant",
    "fraud.remove": "$merchant",
    "case.resolve": "$old_merchant",
    "payment.cancel": "$old_merchant",
    "payment-link.deactivate": "$old_merchant",
    "payment.refund": "$old_merchant",
    "payment.end": "$old_merchant",
    "refund.address-link": "$old_merchant",
    "refund.approve": "$old_merchant",
    "refund.resend": "$old_merchant",
    "refund.reject": "$old_merchant",
    "webhooks.replay": "$old_merchant",
    "payout.reverse": "$old_merchant",
    "gateway-payout.record": "$merchant",
    "gateway-payout.reverse": "$merchant",
}


@dataclass
class Stage:
    """An installation outside the sandbox, with a NEW merchant and a merchant with events."""

    world: World
    service: Service
    known: dict[str, Any]
    tokens: dict[str, str]  # of the admins Ada, Alan, Bob and Eve

    def fields(self, action: str) -> dict[str, Any]:
        """Return an example's fields as JSON values."""
        return {name: self.meant(value) for name, value in EXAMPLES[action].items()}

    def meant(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$"):
            return self.known[value[1:]]
        return value

    def example(self, action: str) -> AnyOperation[Any]:
        """Return an operation that can run after the earlier operations in the table."""
        return msgspec.convert(self.fields(action), OPERATIONS[action])

    async def perform(self, operation: AnyOperation[Any], actor: Actor = ADA) -> Any:
        """Run an operation, with Alan's approval if needed, and return its displayed result."""
        return await perform_approved(self.service, operation, actor)


async def perform_approved(
    service: Service, operation: AnyOperation[Any], actor: Actor = ADA
) -> Any:
    result = await service.submit(operation, actor)
    if not isinstance(result, Proposal):
        return result
    assert isinstance(operation, ChangeOperation)
    approval = Approve(approval_id=ids.format_id(ids.APPROVAL, result.id))
    return SimpleNamespace(**(await service.run_operation(approval, ALAN)).result)


@asynccontextmanager
async def open_outside_sandbox(world: World, **gateways: Gateway) -> AsyncIterator[Service]:
    """Open the world's installation again, outside sandbox mode."""
    settings = world.service.settings.model_copy(update={"sandbox": False})
    with contract_node() as url:
        service = await open_service(with_node(settings, url), gateways | {"fake": world.gateway})
        try:
            yield service
        finally:
            await service.close()


async def make_stage(world: World, service: Service) -> Stage:
    """Create everything that the examples reference."""
    tokens = {name: await world.operator_token(name) for name in ("Ada", "Alan", "Bob", "Eve")}
    new = await service.run_operation(CreateMerchant(name="Nimbus Books"), ADA)
    merchant_id = new.merchant.id
    account = await perform_approved(
        service,
        AddAccount(
            provider="fake",
            base_url="https://gateway.example.com",
            credentials={"signing_secret": SECRET},
            merchant_id=merchant_id,
        ),
    )
    method = await service.run_operation(
        AddPaymentMethod(
            merchant_id=merchant_id,
            account_id=account.id,
            kind="card",
            label="Card",
            currencies=["THB", "JPY"],
        ),
        ADA,
    )
    rule = AddFraudRule(kind=FraudRuleKind.PAYER, value="buyer-9", merchant_id=merchant_id)
    key = await service.run_operation(IssueApiKey(merchant_id=merchant_id, name="old server"), ADA)
    payment, first, second = await add_refunds_for_approval(world)
    await world.cancelled(payer_uid="buyer-6")
    values = {
        "merchant": merchant_id,
        "api_key": new.api_key,
        "old_merchant": world.merchant_id,
        "account": account.id,
        "run": str(await _failed_run(world, account.id)),
        "method": method.id,
        "rule": (await service.run_operation(rule, ADA)).id,
        "key": key.api_key.split("_")[2],
        "token": tokens["Eve"].split("_")[1],
        "identity": await _identity(service),
        "approval": await _proposed(service, "101"),
        "other_approval": await _proposed(service, "102"),
        "contract": await _contract(service),
        "case": await _case(world),
        "event": str(await _event(world)),
        "payment": ids.format_id(ids.PAYMENT, payment),
        "pending": ids.format_id(ids.PAYMENT, (await world.create()).id),
        "stranded": ids.format_id(ids.PAYMENT, (await strand_payment(world)).id),
        "refund": ids.format_id(ids.REFUND, first),
        "other_refund": ids.format_id(ids.REFUND, second),
        "link": ids.format_id(ids.PAYMENT_LINK, (await make_link(world)).id),
        "statement": ids.format_id(ids.STATEMENT, await add_statement(world)),
        "payout": str(await _payout(world, service)),
        "gateway_payout": str(await _gateway_payout(service, account.id)),
        "resting_refund": ids.format_id(ids.REFUND, await add_stopped_refund(world)),
        "deposit_refund": ids.format_id(ids.REFUND, await deposit_refund(world)),
    }
    return Stage(world, service, values, tokens)


async def add_statement(world: World) -> UUID:
    """Close a day of the first merchant with its current balance."""
    statement_id = world.id_generator.new_id()
    await world.rows(
        """
        INSERT INTO statement (id, merchant_id, currency, chain, number, day, time_zone,
            opening_minor, payments_minor, fees_minor, tax_minor, refunds_minor, disputes_minor,
            adjustments_minor, payouts_minor, closing_minor, first_number, last_number, until_at,
            closed_number, closed_at)
        SELECT $1, $2, 'THB', '', 1, '2026-11-22', 'UTC', 0, 159000, -4611, 0, 0, 0, 0, 0, 154389,
            0, coalesce(max(entry_number), 0), clock(), -1, 'epoch'
        FROM ledger_entry
        """,
        statement_id,
        world.merchant_id,
    )
    return statement_id


async def _failed_run(world: World, account_id: int) -> UUID:
    """Record that a worker failed to process an account's file."""
    run_id = world.id_generator.new_id()
    await world.rows(
        """
        INSERT INTO reconciliation_run (id, account_id, source, name, sha256, status, lease_until,
            problem, ended_at)
        VALUES ($1, $2, 'folder', 'a.csv', '00', 'failed', clock(), 'line 2: no', clock())
        """,
        run_id,
        account_id,
    )
    return run_id


async def _payout(world: World, service: Service) -> UUID:
    """Record a small payout to the first merchant."""
    record = RecordPayout(
        merchant_id=world.merchant_id, amount="1.00", currency="THB", reference="transfer 1"
    )
    return (await service.run_operation(record, ADA)).id


async def _gateway_payout(service: Service, account_id: int) -> UUID:
    """Record a gateway's payout for an account."""
    record = RecordGatewayPayout(
        account_id=account_id, amount="9.00", currency="THB", reference="po_1"
    )
    return (await service.run_operation(record, ADA)).id


#: Makes the newest pending refund look like the refund of a deposit.
PAID_BY_DEPOSIT = """
    WITH chosen AS (
        SELECT id, capture_id
        FROM refund
        WHERE merchant_id IS NOT NULL AND status = 'PENDING' AND sent_at IS NULL
        ORDER BY id DESC
        LIMIT 1
    ), receipt AS (
        INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index,
            uuid, payer, token, receiver, amount, session_id, disposition, final_at, mined_at,
            deposit_capture_id)
        SELECT gen_random_uuid(), k.chain, k.account_id, 7, n.word, n.word, 0,
            substr(n.word, 1, 16), k.receiver, t.address, k.receiver, 90, c.session_id, 'deposit',
            clock(), clock(), c.id
        FROM chosen
        JOIN capture c ON c.id = chosen.capture_id
        CROSS JOIN chain_contract k
        JOIN chain_token t ON t.chain = k.chain AND t.address IS NOT NULL
        CROSS JOIN (SELECT decode(repeat('07', 32), 'hex') AS word) n
        LIMIT 1
        RETURNING id
    ), linked AS (
        UPDATE capture
        SET receipt_id = receipt.id
        FROM receipt, chosen
        WHERE capture.id = chosen.capture_id
    )
    UPDATE refund
    SET step = 'address', next_at = NULL
    FROM chosen
    WHERE refund.id = chosen.id
    RETURNING refund.id
"""


async def add_refunds_for_approval(world: World) -> tuple[UUID, UUID, UUID]:
    """Pay a payment of the first merchant, and leave two of its refunds waiting for approval."""
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference=f"cap-{payment.id}"))
    refund_ids: list[UUID] = []
    async with world.database.transaction() as tx:
        locked = await payment_store.lock(tx, [payment.id])
        capture = await capture_store.lock_credited(tx, payment.id)
        for _ in range(2):
            new = NewRefund(
                id=world.id_generator.new_id(),
                merchant_id=world.merchant_id,
                payment_id=payment.id,
                capture_id=capture.id,
                case_id=None,
                amount=Decimal("90.00"),
                amount_text="90.00",
                currency="THB",
                amount_minor=9_000,
                reason="a book was missing",
                destination=None,
                step=RefundStep.APPROVAL,
                requested_by=f"merchant:{world.merchant_id}",
                at=locked.now,
            )
            refund_ids.append((await refund_store.add(tx, new)).id)
    return payment.id, refund_ids[0], refund_ids[1]


async def add_stopped_refund(world: World) -> UUID:
    """Leave a refund of the first merchant on hold before any request to the gateway."""
    _, refund_id, _ = await add_refunds_for_approval(world)
    await world.rows("UPDATE refund SET step = 'queued', next_at = NULL WHERE id = $1", refund_id)
    return refund_id


async def deposit_refund(world: World) -> UUID:
    """Leave a refund of the first merchant waiting for the buyer's address."""
    await add_refunds_for_approval(world)
    [row] = await world.rows(PAID_BY_DEPOSIT)
    return row["id"]


async def _identity(service: Service) -> str:
    """Record a sign-in with OpenID Connect."""
    new = NewSignIn(
        id=service.database.id_generator.new_id(),
        issuer="https://login.example.com",
        subject="u-1",
        name="oidc:grace@example.com/3f0c9a1b7d2e",
        role=Role.VIEWER,
    )
    async with service.database.transaction() as tx:
        await identities_store.sign_in(tx, new)
    return new.name


async def _contract(service: Service) -> int:
    """Add a contract of the platform."""
    new = AddContract(chain="bsc", address=CONTRACT, receiver=RECEIVER, deployed_block=7)
    return (await perform_approved(service, new)).account_id


async def _proposed(service: Service, above: str) -> str:
    """Let Bob propose an operation that Ada may decide."""
    change = SetChain(chain="native", refund_approval_above=above)
    proposal = await service.submit(change, replace(ADA, name="Bob"))
    assert isinstance(proposal, Proposal)
    return ids.format_id(ids.APPROVAL, proposal.id)


async def _case(world: World) -> str:
    """Open a case about a selection of the first merchant."""
    payment = await world.create()
    session = (await world.select(payment)).session
    row = (world.id_generator.new_id(), world.merchant_id, payment.id, session.id)
    await world.rows(
        """
        INSERT INTO money_case (id, kind, merchant_id, payment_id, session_id, opened_at)
        VALUES ($1, 'ORPHAN_CAPTURE', $2, $3, $4, clock())
        """,
        *row,
    )
    return ids.format_id(ids.CASE, row[0])


async def _event(world: World) -> Any:
    """Record an event of the first merchant, which has no callback URL."""
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    return row["id"]
