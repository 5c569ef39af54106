"""Configuration files are exported, compared and applied, with approvals and after a crash."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from payintent.approvals.operations import Approve, ListApprovals, Reject
from payintent.chains.operations import SetToken
from payintent.configuration.plan import (
    ExportConfig,
    PlanConfig,
    PlanStep,
    apply_plan,
    format_config,
    parse_config,
)
from payintent.core.access import RateLimitClass, Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.gateway_accounts.providers_operations import DisableProvider, RenameProvider
from payintent.merchants.access_operations import SetRateLimit
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    DisablePaymentMethod,
    ListPaymentMethods,
)
from payintent.merchants.model import FeeMode
from payintent.merchants.operations import SetDepositTolerance, SetRefundThreshold
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction, LiftRestriction
from payintent.merchants.taxes import ListTaxRates, RemoveTaxRate, SetTaxRate
from payintent.onchain.operations import SetChain
from payintent.operators.operation import Actor, ChangeOperation, ReadOperation
from payintent.operators.operations import ListAuditEntries
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.databases import Databases
from tests.support.fakes import FakeGateway
from tests.support.operation_examples import ADA, ALAN, open_outside_sandbox, perform_approved
from tests.support.world import World

_TOKEN = "0x" + "5A" * 20
_AT_TERMINAL = Actor("cli:ann", "ticket 9")


def _planning(text: str) -> PlanConfig:
    return PlanConfig(file=parse_config(text.encode(), "shop.yaml"))


@dataclass(frozen=True)
class Installation:
    service: Service
    actor: Actor = _AT_TERMINAL

    async def export(self, *, merchants: bool = False) -> str:
        export = ExportConfig(with_merchants=merchants)
        return format_config(await self.service.submit(export, self.actor))  # type: ignore[arg-type]

    async def plan(self, text: str) -> list[PlanStep]:
        return await self.submit(_planning(text))

    async def submit(self, operation: ReadOperation[Any] | ChangeOperation[Any]) -> Any:
        return await self.service.submit(operation, self.actor)

    async def apply(self, text: str) -> list[PlanStep]:
        return await self.apply_steps(text, await self.plan(text))

    async def apply_steps(self, text: str, steps: list[PlanStep]) -> list[PlanStep]:
        url = self.service.settings.direct_url
        return await apply_plan(url, _planning(text), steps, self.submit)

    async def refusal(self, text: str) -> str:
        with pytest.raises(RefusedError) as refused:
            await self.apply(text)
        return refused.value.message


@pytest.fixture
def here(world: World) -> Installation:
    return Installation(world.service)


@pytest.fixture
async def empty(settings: Settings, databases: Databases) -> AsyncIterator[Installation]:
    """Another installation without any setup."""
    url = databases.take()
    service = await open_service(
        settings.model_copy(update={"database_url": url}), {"fake": FakeGateway()}
    )
    yield Installation(service)
    await service.close()
    databases.give_back(url)


@pytest.fixture
async def production(world: World) -> AsyncIterator[Installation]:
    async with open_outside_sandbox(world) as service:
        for name in ("Ada", "Alan"):
            await world.operator_token(name)
        yield Installation(service, ADA)


_CHANGES: list[ChangeOperation[Any]] = [
    SetChain(
        chain="ethereum",
        finality="confirmations",
        confirmations=24,
        explorer_urls=["https://explorer.example.com"],
        public_rpc_urls=["https://rpc.example.com"],
        refund_approval_above="1500.50",
        auto_refund_gas=2_000_000,
        sweep_count=20,
        sweep_after_s=43_200,
        sweep_gas_price_max="7.5",
        transfer_fee_usd="0.25",
    ),
    SetToken(
        chain="ethereum",
        symbol="USDT",
        address=_TOKEN,
        decimals=6,
        enabled=True,
        minimum=1_000_000,
        sweep_value="5000",
        sweep_minimum="1.5",
        surplus_from="0.25",
    ),
    RenameProvider(provider="stripe", wire_name="cards"),
    DisableProvider(provider="ecpay"),
    AddRestriction(type=RestrictionType.CRYPTO, country="CU"),
    AddRestriction(type=RestrictionType.CRYPTO, country="NO"),
    LiftRestriction(type=RestrictionType.CRYPTO, country="NO"),
    AddFraudRule(kind=FraudRuleKind.EMAIL, value="@Spam.example", score=10),
    AddFraudRule(kind=FraudRuleKind.COUNTRY, value="NO", code="NOT_HERE"),
    AddFraudRule(kind=FraudRuleKind.COUNTRY, value="NO", code="NOT_HERE"),
    AddFraudRule(kind=FraudRuleKind.PAYER, value="007: 'José' #1\n- x"),
    AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=3, window_s=60),
    SetTaxRate(country="TH", rate=Decimal("0.0700")),
    SetTaxRate(country="NO", rate=Decimal("0.25")),
]


async def _fill(world: World) -> None:
    for change in _CHANGES:
        await world.perform(change)


async def _fill_merchant(world: World) -> None:
    merchant_id = world.merchant_id
    await world.perform(
        SetRateLimit(merchant_id=merchant_id, kind=RateLimitClass.CREATE, per_s=5, burst=7)
    )
    await world.perform(
        SetRefundThreshold(merchant_id=merchant_id, currency="THB", above="50000.00")
    )
    await world.perform(SetDepositTolerance(merchant_id=merchant_id, percent=Decimal("0.50")))
    await world.perform(
        AddFraudRule(kind=FraudRuleKind.PAYER, value="buyer-9", merchant_id=merchant_id)
    )


async def test_an_export_applied_to_an_empty_installation_exports_the_same_bytes(
    world: World, here: Installation, empty: Installation
) -> None:
    await _fill(world)
    text = await here.export()
    assert await empty.export() != text
    assert await empty.apply(text) == []
    assert await empty.export() == text
    assert await empty.plan(text) == await here.plan(text) == []


async def test_an_export_has_every_section_and_no_secrets(world: World, here: Installation) -> None:
    await _fill(world)
    await _fill_merchant(world)
    text = await here.export(merchants=True)
    sections = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == [
        *("chains", "tokens", "providers", "restrictions", "fraud_rules", "tax_rates"),
        *("retention", "merchant_rate_limits", "merchant_fraud_rules"),
        *("merchant_refund_thresholds", "merchant_deposit_tolerances", "merchant_methods"),
    ]
    settings = world.service.settings
    secrets = [
        *(world.api_key, world.callback_secret, settings.database_url),
        *(settings.pepper.get_secret_value(), settings.keyring.get_secret_value()),
    ]
    assert [secret for secret in secrets if secret in text] == []
    assert "merchant" not in await here.export()


async def test_merchant_settings_are_applied_to_existing_merchants(
    world: World, here: Installation
) -> None:
    await _fill_merchant(world)
    text = await here.export(merchants=True)
    changed = (
        text.replace("per_s: 5", "per_s: 6")
        .replace("above: '50000'", "above: '60000'")
        .replace("percent: '0.5'", "percent: '0.25'")
        .replace("value: buyer-9", "value: buyer-10")
        .replace("fee_rate: '0.029'", "fee_rate: '0.031'")
    )
    assert changed != text
    assert [str(step).partition(":")[0] for step in await here.plan(changed)] == [
        f"~ merchant_rate_limits {world.merchant_id} create",
        f"+ merchant_fraud_rules PAYER buyer-10 PAYER_BLOCKED HIGH 100 {world.merchant_id}",
        f"- merchant_fraud_rules PAYER buyer-9 PAYER_BLOCKED HIGH 100 {world.merchant_id}",
        f"~ merchant_refund_thresholds {world.merchant_id} THB",
        f"~ merchant_deposit_tolerances {world.merchant_id}",
        f"~ merchant_methods {world.merchant_id} {world.account_id} card Card",
        f"~ merchant_methods {world.merchant_id} {world.account_id} redirect Transfer",
    ]
    await here.apply(changed)
    assert await here.export(merchants=True) == changed
    await here.apply(text)
    assert await here.export(merchants=True) == text


async def test_a_method_missing_from_the_file_is_disabled_and_can_be_offered_again(
    world: World, here: Installation
) -> None:
    text = await here.export(merchants=True)
    head = text[: text.index("merchant_methods:")]
    none = head + "merchant_methods: []\n"
    assert [step.sign for step in await here.plan(none)] == ["-", "-"]
    await here.apply(none)
    methods = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    assert [method.enabled for method in methods] == [False, False]
    assert await here.plan(none) == []
    await here.apply(text)
    assert await here.export(merchants=True) == text
    again = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    assert [method.id for method in again] == [method.id for method in methods]


async def test_methods_with_the_same_name_are_compared_in_order(
    world: World, here: Installation
) -> None:
    for country, rate in (("TH", "0.01"), ("JP", "0.02")):
        await world.perform(
            AddPaymentMethod(
                merchant_id=world.merchant_id,
                account_id=world.account_id,
                kind="card",
                label="Same",
                currencies=["THB"],
                countries=[country],
                fee_rate=Decimal(rate),
            )
        )
    text = await here.export(merchants=True)
    assert await here.plan(text) == []
    [step] = await here.plan(text.replace("fee_rate: '0.02'", "fee_rate: '0.03'"))
    assert step.changes == "fee_rate 0.02 → 0.03"


async def test_translations_of_a_label_are_exported_and_applied_in_any_order(
    world: World, here: Installation
) -> None:
    entries = ["ar:بطاقة", "id:'Kartu': debit, kredit", "th:บัตรเครดิต", "zh-Hant:信用卡"]
    await world.perform(
        ChangePaymentMethod(method_id=world.card, label_translations=list(reversed(entries)))
    )
    text = await here.export(merchants=True)
    lines = "".join(f"  - {entry}\n" for entry in entries).replace(
        "id:'Kartu': debit, kredit", "'id:''Kartu'': debit, kredit'"
    )
    assert f"  label_translations:\n{lines}" in text
    assert await here.plan(text.replace(lines, "".join(reversed(lines.splitlines(True))))) == []
    without = text.replace(f":\n{lines}", ": []\n")
    [step] = await here.plan(without)
    assert step.changes.endswith(" → []")
    await here.apply(without)
    assert await here.export(merchants=True) == without
    await here.apply(text)
    assert await here.export(merchants=True) == text
    unspecified = text.replace(f"  label_translations:\n{lines}", "")
    assert await here.plan(unspecified) == []


async def test_a_missing_section_is_unchanged_and_an_empty_section_removes_its_entries(
    world: World, here: Installation
) -> None:
    await _fill(world)
    before = await here.export()
    assert await here.plan("version: 1\n") == []
    empty = "version: 1\ntax_rates: []\nrestrictions: []\nchains: []\nproviders: []\n"
    assert [str(step) for step in await here.plan(empty)] == [
        "- providers ecpay: removed (wire_name ecpay, enabled false)",
        "- providers stripe: removed (wire_name cards, enabled true)",
        "- restrictions CRYPTO CU: removed (active true)",
        "- restrictions ONRAMP KR: removed (active true)",
        "- tax_rates NO: removed (rate 0.25)",
        "- tax_rates TH: removed (rate 0.07)",
    ]
    assert await here.export() == before, "a plan changes nothing"
    await here.apply(empty)
    assert await here.plan(empty) == []
    assert await world.perform(ListTaxRates()) == []


async def test_a_missing_field_is_unchanged(world: World, here: Installation) -> None:
    await world.perform(
        SetRateLimit(merchant_id=world.merchant_id, kind=RateLimitClass.READ, per_s=5, burst=99)
    )
    text = f"""
version: 1
chains:
- chain: ethereum
  auto_refund_gas: 7
merchant_rate_limits:
- merchant_id: {world.merchant_id}
  kind: read
  per_s: 6
"""
    assert [str(step) for step in await here.plan(text)] == [
        "~ chains ethereum: auto_refund_gas 3000000 → 7",
        f"~ merchant_rate_limits {world.merchant_id} read: per_s 5 → 6",
    ]
    await here.apply(text)
    assert await here.plan(text) == []
    assert "per_s: 6\n  burst: 99\n" in await here.export(merchants=True)


async def test_a_method_keeps_its_countries_and_its_fee_mode_if_they_are_missing(
    world: World, here: Installation
) -> None:
    await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=world.account_id,
            kind="card",
            label="Restricted",
            currencies=["THB"],
            countries=["TH"],
            fee_mode=FeeMode.EXCLUSIVE,
            position=3,
        )
    )
    text = await here.export(merchants=True)
    rest = re.sub(r"  (countries:\n  - TH|fee_mode: EXCLUSIVE|position: 3)\n", "", text)
    assert len(text.splitlines()) - len(rest.splitlines()) == 4
    assert [str(step) for step in await here.plan(rest)] == []
    everywhere = text.replace("  countries:\n  - TH\n", "  countries: null\n")
    assert [step.changes for step in await here.plan(everywhere)] == ['countries ["TH"] → null']
    nowhere = text.replace("  countries:\n  - TH\n", "  countries: []\n")
    assert "countries: expected" in await here.refusal(nowhere)


async def test_each_change_is_in_the_audit_log_with_its_reason(
    world: World, production: Installation
) -> None:
    text = "version: 1\nrestrictions:\n- type: CRYPTO\n  country: CU\n"
    await production.apply(text)
    entries = await world.perform(ListAuditEntries(limit=5))
    mine = [(entry.who, entry.why, entry.action) for entry in entries if entry.who == "Ada"]
    assert mine == [
        ("Ada", "ticket 7", "restriction.lift"),
        ("Ada", "ticket 7", "restriction.add"),
    ]


async def test_a_pending_approval_is_shown_and_not_proposed_again(
    world: World, production: Installation
) -> None:
    await world.perform(SetTaxRate(country="JP", rate=Decimal("0.1")))
    text = """
version: 1
restrictions:
- {type: ONRAMP, country: KR}
- {type: CRYPTO, country: CU}
tax_rates:
- country: TH
  rate: 0.070
"""
    new, added, removed = await production.plan(text)
    assert [new.needs_approval, added.needs_approval, removed.needs_approval] == [False, True, True]
    first = await production.apply(text)
    assert [step.subject for step in first] == ["tax_rates TH", "tax_rates JP"]
    approvals = [step.approval_id for step in first]
    assert [
        f"[pending approval: {approval}]" in str(step)
        for approval, step in zip(approvals, await production.plan(text), strict=True)
    ] == [True, True]
    assert [step.approval_id for step in await production.apply(text)] == approvals
    assert len(await world.perform(ListApprovals())) == 2

    approve = Approve(approval_id=str(approvals[0]))
    await production.service.run_operation(approve, ALAN)
    reject = Reject(approval_id=str(approvals[1]), note="not yet")
    await production.service.run_operation(reject, ALAN)
    [left] = await production.plan(text)
    assert (left.sign, left.subject, left.approval_id) == ("-", "tax_rates JP", None)
    await perform_approved(production.service, RemoveTaxRate(country="JP"))
    assert await production.plan(text) == []


async def test_a_step_that_needs_approval_continues_once_approved(
    world: World, production: Installation
) -> None:
    text = await production.export(merchants=True)
    text = text.replace("fee_rate: '0.029'", "fee_rate: '0.031'", 1)
    await world.perform(DisablePaymentMethod(method_id=world.card))

    async def card() -> tuple[bool, Decimal]:
        methods = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
        [method] = [method for method in methods if method.id == world.card]
        return method.enabled, method.fee_rate

    [waiting] = await production.apply(text)
    assert await card() == (False, Decimal("0.029")), "not offered at its old fee"
    approve = Approve(approval_id=str(waiting.approval_id))
    await production.service.run_operation(approve, ALAN)
    assert await production.apply(text) == []
    assert await card() == (True, Decimal("0.031"))


async def test_values_are_compared_in_the_exported_form(here: Installation) -> None:
    text = f"""
version: 1
tokens:
- {{chain: ethereum, symbol: USDT, address: "{_TOKEN.lower()}", auto_refund_from: 3.50}}
fraud_rules:
- {{kind: EMAIL, value: "@Spam.Example", code: SPAM}}
tax_rates:
- {{country: NO, rate: 0.2500}}
"""
    assert len(await here.plan(text)) == 3
    await here.apply(text)
    assert await here.plan(text) == []


async def test_a_number_keeps_all_its_digits(here: Installation) -> None:
    limit = "123456789012345678.123456789012345678"
    text = f"version: 1\nchains:\n- chain: bsc\n  refund_approval_above: {limit}\n"
    await here.apply(text)
    assert await here.plan(text) == []
    assert f"refund_approval_above: '{limit}'\n" in await here.export()


async def test_a_viewer_can_compare_but_not_apply(world: World, production: Installation) -> None:
    await world.operator_token("Vera", Role.VIEWER)
    viewer = Installation(production.service, Actor("Vera", "looking", Role.VIEWER))
    text = "version: 1\nrestrictions: []\n"
    assert len(await viewer.plan(text)) == 1
    assert "requires the admin role" in await viewer.refusal(text)
    assert len(await viewer.plan(text)) == 1


async def test_applying_continues_after_a_crash(world: World, here: Installation) -> None:
    text = "version: 1\ntax_rates:\n" + "".join(
        f"- country: {country}\n  rate: 0.05\n" for country in ("JP", "TH", "TW")
    )
    steps = await here.plan(text)

    async def crash_at_the_second(operation: ReadOperation[Any] | ChangeOperation[Any]) -> Any:
        if isinstance(operation, SetTaxRate) and operation.country == "TH":
            raise ConnectionError
        return await here.submit(operation)

    url = here.service.settings.direct_url
    with pytest.raises(ConnectionError):
        await apply_plan(url, _planning(text), steps, crash_at_the_second)
    assert [step.subject for step in await here.plan(text)] == ["tax_rates TH", "tax_rates TW"]
    await here.apply(text)
    assert await here.plan(text) == []
    entries = await world.perform(ListAuditEntries(limit=10))
    assert [entry.action for entry in entries].count("tax.set") == 3


async def test_a_file_that_two_people_apply_concurrently_is_applied_once(
    here: Installation,
) -> None:
    text = "version: 1\nfraud_rules:\n- {kind: PAYER, value: buyer-7, code: STOLEN}\n"
    steps = await here.plan(text)
    results = await asyncio.gather(
        *(here.apply_steps(text, steps) for _ in range(3)), return_exceptions=True
    )
    assert [item for item in results if not isinstance(item, RefusedError)] == [[]]
    assert {item.code for item in results if isinstance(item, RefusedError)} == {ErrorCode.CONFLICT}
    assert await here.plan(text) == []


async def test_an_outdated_plan_is_refused(here: Installation) -> None:
    text = "version: 1\ntax_rates:\n- {country: TH, rate: 0.07}\n"
    steps = await here.plan(text)
    await here.submit(SetTaxRate(country="JP", rate=Decimal("0.1")))
    with pytest.raises(RefusedError, match="has just changed"):
        await here.apply_steps(text, steps)
    assert [step.sign for step in await here.plan(text)] == ["+", "-"]


async def test_retention_is_compared_but_only_the_environment_sets_it(here: Installation) -> None:
    text = "version: 1\nretention:\n- rule: attempts\n  days: 30\n"
    [step] = await here.plan(text)
    assert str(step) == "~ retention attempts: days 90 → 30 [set PAYINTENT_ATTEMPTS_DAYS=30]"
    assert await here.apply(text) == []
    assert await here.plan(text) == [step]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "shop.yaml:1: the file is empty"),
        ("tax_rates: []", "shop.yaml:1: version: expected `version: 1`"),
        ("version: 2", "shop.yaml:1: version: expected `version: 1`"),
        ("- a", "shop.yaml:1: expected sections such as `tax_rates:`"),
        (
            "version: 1\ntax: []",
            "shop.yaml:2: unknown section `tax`; the sections are chains, tokens",
        ),
        (
            "version: 1\ntax_rates:",
            "shop.yaml:2: tax_rates: expected a list, or [] if there are no entries",
        ),
        (
            "version: 1\ntax_rates:\n- TH",
            "shop.yaml:3: tax_rates[0]: expected fields such as `country: TH`",
        ),
        (
            "version: 1\ntax_rates:\n- country: TH\n  rates: 1",
            "shop.yaml:4: tax_rates[0]: object contains unknown field `rates`",
        ),
        (
            "version: 1\ntax_rates:\n- country: TH",
            "shop.yaml:3: tax_rates[0]: object missing required field `rate`",
        ),
        (
            "version: 1\nfraud_rules:\n- kind: COUNTRY\n  value: JP\n  code: A\n  score: much",
            "shop.yaml:6: fraud_rules[0].score: expected `int`, got `str`",
        ),
        (
            "version: 1\nchains:\n- chain: ethereum\n  explorer_urls:\n  - [a]\n",
            "shop.yaml:5: chains[0].explorer_urls[0]: expected `str`, got `array`",
        ),
        (
            "version: 1\ntax_rates:\n- country: TH\n  rate: 1e400",
            "shop.yaml:4: tax_rates[0].rate: expected `str` matching regex",
        ),
        (
            "version: 1\ntax_rates:\n- {country: TH, rate: 0.07}\n- {country: TH, rate: 0.1}",
            "shop.yaml:4: tax_rates[1]: duplicate of the entry on line 3",
        ),
        (
            "version: 1\ntokens:\n- {chain: ethereum, symbol: USDT, address: '0x12'}",
            "shop.yaml:3: tokens[0]: address: ",
        ),
        ("version: 1\nversion: 1", "shop.yaml:2: duplicate key `version`"),
        ("version: 1\ntax_rates: &a []", "shop.yaml:2: anchors and aliases are not allowed"),
        ("version: 1\ntax_rates: *a", "shop.yaml:2: anchors and aliases are not allowed"),
        ("version: 1\ntax_rates: !!python/tuple []", "shop.yaml:2: tags are not allowed"),
        ("version: 1\ntax_rates: [}", "shop.yaml:2: not valid YAML: "),
        ("version: 1\n? [a]\n: []", "shop.yaml:2: a key must be a string"),
        ("version: 1\n---\nversion: 1", "shop.yaml:2: only one YAML document is allowed"),
        ("[" * 100_000, "shop.yaml:1: more than 8 levels of nesting"),
    ],
)
def test_a_malformed_file_gets_one_error_with_its_line(text: str, refusal: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_config(text.encode(), "shop.yaml")
    assert refused.value.message.startswith(refusal)
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "version: 1\ntax_rates:\n- country: TH\n  rate: 7",
            "shop.yaml:3: tax_rates[0]: rate must be between 0 and 1",
        ),
        (
            "version: 1\ntokens:\n- {chain: mars, symbol: USDT, enabled: true}",
            "shop.yaml:3: tokens[0]: this installation has no tokens mars USDT",
        ),
        (
            "version: 1\nmerchant_rate_limits:\n- {merchant_id: 99, kind: read, per_s: 1}",
            "shop.yaml:3: merchant_rate_limits[0]: no merchant 99",
        ),
        (
            (
                "version: 1\nmerchant_methods:\n- {merchant_id: 1, account_id: 99, kind: qr,"
                " label: A, currencies: [THB], fee_rate: 0}"
            ),
            "shop.yaml:3: merchant_methods[0]: this merchant has no account 99",
        ),
        (
            (
                "version: 1\nmerchant_methods:\n- {merchant_id: 1, account_id: 1, kind: qr,"
                " label: A, currencies: [THB], fee_rate: 0, label_translations: ['de:Karte']}"
            ),
            "shop.yaml:3: merchant_methods[0]: label_translations must be LANGUAGE:LABEL",
        ),
    ],
)
async def test_a_refused_entry_is_reported_with_its_line_and_nothing_is_changed(
    here: Installation, text: str, refusal: str
) -> None:
    before = await here.export(merchants=True)
    message = await here.refusal(f"{text}\nrestrictions: []\n")  # would be applied first
    assert message.startswith(refusal), message
    assert await here.export(merchants=True) == before


def test_a_binary_or_oversized_file_is_refused() -> None:
    for content, problem in ((b"\xff", "not UTF-8"), (b"#" * (16 << 20) + b"##", "16 MiB")):
        with pytest.raises(RefusedError, match=problem):
            parse_config(content, "shop.yaml")
