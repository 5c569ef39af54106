"""Merchants in the console: the activation checklist, keys, secrets and settings."""

import re

import pytest

from payintent.core.access import Role
from payintent.merchants.access_operations import IssueApiKey
from payintent.service import Service
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.fakes import captured
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

_STEP = re.compile(r'<li class="(done|open)">\s*<p><strong>([^<]+)</strong>')
_FORM = re.compile(r'href="(/operations/[^"?]+)')


def read_steps(answer: Answer) -> dict[str, bool]:
    return {name: state == "done" for state, name in _STEP.findall(answer.body.decode())}


async def test_merchants_can_be_found_by_part_of_their_name(operator: Api, world: World) -> None:
    await world.add_merchant("Ann & Sons", methods="none")
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert "Ann & Sons" in words(await visitor.get("/merchants?name=SONS"))
    assert "Nimbus Books" not in words(await visitor.get("/merchants?name=SONS"))
    assert "No merchants." in words(await visitor.get("/merchants?activation=SUSPENDED"))


@pytest.mark.parametrize(
    ("codes", "market"), [("'TH'", "1 country, all"), ("'TH', 'JP'", "2 countries, all")]
)
async def test_the_list_counts_the_countries_of_a_market(
    operator: Api, world: World, codes: str, market: str
) -> None:
    await world.rows(f"UPDATE merchant SET countries = ARRAY[{codes}]")
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert market in words(await visitor.get("/merchants"))


async def test_only_test_merchants_are_marked(operator: Api, world: World) -> None:
    side = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for merchant_id, is_test in ((world.merchant_id, False), (side.merchant_id, True)):
        page = await visitor.get(f"/merchants/{merchant_id}")
        assert (">TEST</span>" in page.body.decode()) == is_test
    assert (await visitor.get("/merchants")).body.decode().count(">TEST</span>") == 1


async def test_the_page_of_a_merchant_does_not_show_its_secrets(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator)
    page = (await visitor.get(f"/merchants/{world.merchant_id}")).body.decode()
    assert world.api_key not in page
    assert world.callback_secret not in page
    assert world.api_key.split("_")[2] in page  # the public id of the key


async def test_a_rotated_secret_is_shown_as_signing_until_its_overlap_ends(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator)
    approver = await sign_in_as(operator, "bob")
    fields = {"merchant_id": str(world.merchant_id), "overlap_s": "3600", "why": "yearly"}
    answer = await visitor.post("/operations/merchant/rotate-secret", **fields, step="confirmed")
    assert answer.status == 202  # only the approver sees the secret
    match = re.search(r"appr_\w+", answer.body.decode())
    assert match is not None
    response = await approver.post(
        "/operations/approval/approve", approval_id=match[0], why="agreed", step="confirmed"
    )
    assert "whsec_" in response.body.decode()
    path = f"/merchants/{world.merchant_id}"
    assert "still signs until" in words(await visitor.get(path))
    await world.move_clock(2 * 3600)
    assert "expired" in words(await visitor.get(path))
    assert "still signs" not in words(await visitor.get(path))


@pytest.mark.parametrize("role", [Role.VIEWER, Role.FINANCE, Role.ADMIN])
async def test_only_an_admin_can_change_a_merchant(operator: Api, world: World, role: Role) -> None:
    visitor = await sign_in_as(operator, role=role)
    page = (await visitor.get(f"/merchants/{world.merchant_id}")).body.decode()
    forms = {form for form in _FORM.findall(page) if form != "/operations/account/show"}
    if role is not Role.ADMIN:
        assert forms - {"/operations"} == set()
        path = "/operations/merchant/suspend"
        answer = await visitor.post(path, merchant_id=str(world.merchant_id), why="x")
        assert answer.status == 403
    else:
        assert {"/operations/merchant/suspend", "/operations/key/revoke"} <= forms


class TestOutsideTheSandbox:
    """Outside the sandbox, a merchant must be activated before it can accept payments."""

    @pytest.fixture
    def operated(self, production: Service) -> Service:
        return production

    async def test_a_checklist_shows_the_missing_steps_until_activation(
        self, operator: Api, stage: Stage
    ) -> None:
        ada = Visitor(operator)
        await ada.sign_in(stage.tokens["Ada"])
        merchant_id = stage.known["merchant"]
        path = f"/merchants/{merchant_id}"
        first = await ada.get(path)
        assert read_steps(first)["Accounts and methods"]
        assert not read_steps(first)["Active"]
        assert "missing: the contract, the KYC file" in words(first)
        for action, step in (
            ("merchant.request", "Contract and KYC filed"),
            ("merchant.apply", "Market applied"),
            ("merchant.validate", "Validated"),
            ("merchant.activate", "Active"),
        ):
            assert not read_steps(await ada.get(path))[step], action
            form = stage.fields(action) | {"why": "ticket 7", "step": "confirmed"}
            form_fields = {
                name: ",".join(value) if isinstance(value, list) else str(value)
                for name, value in form.items()
            }
            answer = await ada.post(f"/operations/{action.replace('.', '/')}", **form_fields)
            assert answer.status == 200, words(answer)
            assert read_steps(await ada.get(path))[step], action

    async def test_the_checklist_names_a_currency_without_a_method(
        self, operator: Api, stage: Stage
    ) -> None:
        ada = Visitor(operator)
        await ada.sign_in(stage.tokens["Ada"])
        form = {
            name: ",".join(value) if isinstance(value, list) else str(value)
            for name, value in stage.fields("merchant.request").items()
        } | {"currencies": "THB,USDT", "why": "ticket 7"}
        assert (await ada.post("/operations/merchant/request", **form)).status == 200
        answer = await ada.get(f"/merchants/{stage.known['merchant']}")
        assert not read_steps(answer)["Accounts and methods"]
        assert "no method accepts USDT in the requested countries" in words(answer)


async def test_a_paid_payment_completes_a_step_of_the_checklist(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    path = f"/merchants/{world.merchant_id}"
    assert not read_steps(await visitor.get(path))["A payment was made"]
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="ch_9"))
    assert read_steps(await visitor.get(path))["A payment was made"]
