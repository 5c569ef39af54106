"""Every operation has a page with a form, a confirmation if necessary, and its result."""

import html
import re
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints
from urllib.parse import quote

import pytest

from payintent.console.operation_forms import build_form
from payintent.console.queue_counts import QueueCounts
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import StorageUnavailableError
from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation, ReadOperation
from payintent.service import Service
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.operation_examples import (
    EXAMPLES,
    SECRET,
    TWO_OVER_HTTP,
    Stage,
    add_refunds_for_approval,
)
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

WHY = "by its page"
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


@pytest.fixture
def operated(production: Service) -> Service:
    return production


@pytest.fixture
async def ada(operator: Api, stage: Stage) -> Visitor:
    visitor = Visitor(operator)
    assert (await visitor.sign_in(stage.tokens["Ada"])).status == 303
    return visitor


def page_of(action: str) -> str:
    return f"/operations/{action.replace('.', '/')}"


def is_read(action: str) -> bool:
    return issubclass(OPERATIONS[action], ReadOperation)


def make_form(arguments: dict[str, Any]) -> dict[str, str]:
    """Convert the arguments of an operation to the fields of its form."""
    form: dict[str, str] = {}
    for name, value in arguments.items():
        if isinstance(value, dict):
            for number, (key, item) in enumerate(value.items()):
                form |= {f"{name}.name.{number}": key, f"{name}.value.{number}": item}
        elif isinstance(value, list):
            form[name] = "\r\n".join(value) if name == "lines" else ",".join(value) or '""'
        elif isinstance(value, bool):
            form[name] = str(value).lower()
        else:
            form[name] = str(value)
    return form


async def run_on_page(visitor: Visitor, action: str, form: dict[str, str]) -> Answer:
    """Run an operation on its page, and confirm it if necessary."""
    path = page_of(action)
    if is_read(action):
        query = "&".join(f"{name}={quote(value)}" for name, value in form.items())
        return await visitor.get(f"{path}?{query}")
    answer = await visitor.post(path, **({"why": WHY} | form))
    if OPERATIONS[action].is_destructive and answer.status == 200:
        confirmation = {name: html.unescape(value) for name, value in _find_hidden_fields(answer)}
        assert b"Review changes" in answer.body
        answer = await visitor.post(path, **confirmation, step="confirmed")
    return answer


def _find_hidden_fields(answer: Answer) -> list[tuple[str, str]]:
    return _HIDDEN.findall(answer.body.decode().partition("<main")[2])


async def test_every_operation_can_be_run_on_its_page(
    operator: Api, ada: Visitor, stage: Stage
) -> None:
    alan = Visitor(operator)
    await alan.sign_in(stage.tokens["Alan"])
    for action in EXAMPLES:
        answer = await run_on_page(ada, action, make_form(stage.fields(action)))
        assert answer.status == (202 if action in TWO_OVER_HTTP else 200), (action, words(answer))
        assert SECRET not in answer.body.decode(), action
        if answer.status == 202:
            match = re.search(r"/approvals/(appr_\w+)", answer.body.decode())
            assert match is not None, action
            approval = await run_on_page(alan, "approval.approve", {"approval_id": match[1]})
            assert approval.status == 200, (action, words(approval))
        if action == "operator.replace":
            token = re.search(r"op_\w+", words(answer))
            assert token is not None
            await ada.sign_in(token[0])
    rows = await stage.world.rows(
        "SELECT who, action FROM audit WHERE why = $1 AND action <> 'approval.propose' "
        "AND who <> 'Alan'",
        WHY,
    )
    assert {row["who"] for row in rows} == {"Ada"}
    assert sorted(row["action"] for row in rows) == sorted(
        action for action in OPERATIONS if not is_read(action)
    )


async def test_every_operation_is_listed_with_its_page(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    paths = set(
        re.findall(r'href="(/operations/[^"?]+)"', await _read_body(visitor, "/operations"))
    )
    assert paths == {page_of(action) for action in OPERATIONS}
    for path in sorted(paths):
        assert (await visitor.get(path)).status in {200, 400}, path


async def _read_body(visitor: Visitor, path: str) -> str:
    return (await visitor.get(path)).body.decode()


@pytest.mark.parametrize("role", list(Role))
async def test_operations_that_a_role_does_not_allow_are_hidden_and_refused(
    operator: Api, role: Role
) -> None:
    visitor = await sign_in_as(operator, role=role)
    allowed = {action for action, kind in OPERATIONS.items() if role.includes(kind.needs_role)}
    paths = set(
        re.findall(r'href="(/operations/[^"?]+)"', await _read_body(visitor, "/operations"))
    )
    assert paths == {page_of(action) for action in allowed}
    for action, kind in OPERATIONS.items():
        if action in allowed:
            continue
        message = f"{action} requires the {kind.needs_role} role; ann has the {role} role"
        for answer in (
            await visitor.get(page_of(action)),
            await visitor.post(page_of(action), step="confirmed", why="all the same"),
        ):
            assert answer.status == 403, action
            assert message in words(answer)
    assert await operator.world.rows("SELECT 1 FROM audit WHERE why = 'all the same'") == []


def test_every_column_of_a_table_exists_in_its_rows() -> None:
    for action, kind in OPERATIONS.items():
        if not (issubclass(kind, ReadOperation) and kind.columns):
            continue
        [row] = get_args(get_type_hints(kind.read)["return"])
        field_names = [field.name for field in fields(row)] if is_dataclass(row) else []
        names = set(field_names or row.__struct_fields__)
        assert set(kind.columns) <= names, action


def test_forms_never_show_an_entered_secret() -> None:
    for kind in OPERATIONS.values():
        secrets = getattr(kind, "secret_fields", frozenset[str]())
        values = {f"{name}.value.0": SECRET for name in secrets} | dict.fromkeys(secrets, SECRET)
        for field in build_form(kind, values):
            assert field.is_secret == (field.name in secrets)
            assert SECRET not in str(field)
        # A confirmation form would contain the secret.
        assert not (secrets and issubclass(kind, ChangeOperation) and kind.is_destructive)


async def test_an_error_is_shown_next_to_its_field_and_the_entered_values_are_kept(
    ada: Visitor, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    form = make_form(stage.fields("account.add")) | {
        "base_url": "no address <b>",
        "why": "ticket 9",
    }
    answer = await ada.post(page_of("account.add"), **form)
    page = answer.body.decode()
    assert answer.status == 400
    assert 'aria-describedby="base_url-help base_url-wrong" aria-invalid="true"' in page
    assert 'value="no address &lt;b&gt;"' in page
    assert 'value="ticket 9"' in page
    assert 'name="credentials.name.0" value="signing_secret"' in page
    assert SECRET not in page
    assert SECRET not in capsys.readouterr().out


async def test_a_missing_reason_is_reported_next_to_its_field(ada: Visitor) -> None:
    answer = await ada.post(page_of("tax.set"), country="TH", rate="0.07", why="")
    page = answer.body.decode()
    assert answer.status == 400
    assert 'aria-describedby="why-help why-wrong" aria-invalid="true"' in page
    assert '<p class="wrong" id="why-wrong">why is required' in page


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"country": "TH"}, "rate: is required"),
        ({"country": "TH", "rate": "a lot"}, "rate: must be a number such as 0.07"),
        ({"country": "Thailand", "rate": "0.07"}, "country 'Thailand' is not supported"),
        ({"country": "TH", "rate": "7"}, "rate must be between 0 and 1"),
        ({"country": "TH", "rate": "0.07", "why": ""}, "reason"),
    ],
)
async def test_an_invalid_form_is_refused_with_a_message(
    ada: Visitor, form: dict[str, str], message: str
) -> None:
    answer = await ada.post(page_of("tax.set"), **({"why": WHY} | form))
    assert answer.status == 400
    assert message in words(answer)
    assert await ada.api.world.rows("SELECT * FROM tax_rate") == []


async def test_the_label_of_a_method_can_be_translated(ada: Visitor, stage: Stage) -> None:
    form = {"method_id": str(stage.known["method"]), "why": WHY}
    path = page_of("method.change")
    error_page = await ada.post(path, **form, label_translations="de:Karte")
    assert error_page.status == 400
    assert 'aria-describedby="label_translations-help label_translations-wrong"' in (
        error_page.body.decode()
    )
    answer = await ada.post(path, **form, label_translations="th:บัตรเครดิต, ar:بطاقة")
    assert answer.status == 200
    [row] = await stage.world.rows(
        "SELECT label_translations ->> 'ar' AS label FROM payment_method WHERE id = $1",
        stage.known["method"],
    )
    assert row["label"] == "بطاقة"


async def test_a_destructive_operation_needs_a_confirmation(ada: Visitor, stage: Stage) -> None:
    merchant = str(stage.known["merchant"])
    form = {"merchant_id": merchant, "overlap_s": "60", "why": WHY}
    answer = await ada.post(page_of("merchant.rotate-secret"), **form)
    assert answer.status == 200
    assert "Review changes" in words(answer)
    assert dict(_find_hidden_fields(answer)) == {"csrf": ada.csrf} | form
    assert await stage.world.rows("SELECT 1 FROM audit WHERE why = $1", WHY) == []


async def test_the_amount_of_a_refund_is_checked_before_the_review(
    ada: Visitor, stage: Stage
) -> None:
    payment = await stage.world.create()
    form = {"payment_id": ids.format_id(ids.PAYMENT, payment.id), "why": WHY}
    answer = await ada.post(page_of("payment.refund"), **form, amount="abc")
    assert answer.status == 400
    assert "amount must be a plain decimal string" in words(answer)
    review = await ada.post(page_of("payment.refund"), **form, amount="10.00")
    assert "refund 10.00 THB" in words(review)


async def test_a_dry_run_shows_a_count_without_changing_anything(
    ada: Visitor, stage: Stage
) -> None:
    form = {"since": "2020-01-01T00:00", "why": "", "step": "dry-run"}
    answer = await ada.post(page_of("webhooks.replay-missed"), **form)
    assert answer.status == 200
    assert "Dry run: nothing has changed" in words(answer)
    assert 'value="2020-01-01T00:00"' in answer.body.decode()
    assert re.search(r"Events [1-9]", words(answer))
    assert await stage.world.rows("SELECT 1 FROM audit WHERE action LIKE 'webhooks.%'") == []


async def test_a_list_is_paginated(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    for _ in range(3):
        await operator.world.create()
    first = await visitor.get("/operations/payment/list?limit=2&status=PENDING")
    next_link = re.search(r'href="([^"]+)" rel="next"', first.body.decode())
    assert next_link is not None
    second = await visitor.get(html.unescape(next_link[1]))
    pages = [set(re.findall(r">(pay_\w+)<", page.body.decode())) for page in (first, second)]
    assert [len(page) for page in pages] == [2, 1]
    assert not pages[0] & pages[1]
    assert b'rel="next"' not in second.body


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_every_page_of_a_sorted_list_links_to_the_next_page(
    operator: Api, order: str
) -> None:
    visitor = await sign_in_as(operator)
    await add_refunds_for_approval(operator.world)
    path: str | None = f"/operations/refund/list?limit=1&order={order}"
    refunds: list[str] = []
    while path is not None and len(refunds) < 10:
        page = await visitor.get(path)
        refunds += re.findall(r">(ref_\w+)<", page.body.decode())
        next_link = re.search(r'href="([^"]+)" rel="next"', page.body.decode())
        path = next_link and html.unescape(next_link[1])
    assert len(refunds) > 1
    assert refunds == sorted(set(refunds), reverse=order == "newest")


async def test_a_new_secret_is_shown_even_if_the_queues_cannot_be_counted(
    operator: Api, ada: Visitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count(_: object, *, is_changed: bool = False) -> dict[str, int]:
        if is_changed:
            raise StorageUnavailableError
        return {}

    monkeypatch.setattr(QueueCounts, "get", count)
    answer = await run_on_page(ada, "operator.replace", {})
    assert (answer.status, "shown only once" in words(answer)) == (200, True)
    assert re.search(r"op_\w+", words(answer)) is not None


async def test_a_new_secret_is_shown_once_and_never_logged(
    operator: Api, ada: Visitor, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = await run_on_page(ada, "operator.replace", {})
    assert "shown only once" in words(answer)
    token = re.search(r"op_\w+", words(answer))
    assert token is not None
    assert token[0] not in capsys.readouterr().out
    assert (await ada.get("/operations")).status == 303


async def test_a_refund_form_submitted_twice_creates_one_refund(ada: Visitor, stage: Stage) -> None:
    page = await ada.get(page_of("payment.refund"))
    key = dict(_find_hidden_fields(page))["key"]
    form = {"payment_id": str(stage.known["payment"]), "amount": "10.00", "key": key}
    for _ in range(2):
        response = await ada.post(page_of("payment.refund"), **form, why=WHY, step="confirmed")
        assert response.status == 200, words(response)
    [row] = await stage.world.rows("SELECT count(*) AS n FROM audit WHERE why = $1", WHY)
    assert row["n"] >= 1
    [row] = await stage.world.rows(
        "SELECT count(*) AS n FROM refund WHERE requested_by = 'Ada' AND amount = 10"
    )
    assert row["n"] == 1


@pytest.mark.parametrize("path", ["/operations/tax/burn", "/operations/Tax/set"])
async def test_an_unknown_operation_is_not_found(operator: Api, path: str) -> None:
    answer = await (await sign_in_as(operator)).get(path)
    assert answer.status == 404
    assert "no such operation" in words(answer)


async def test_text_from_merchants_is_escaped(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    script = "<script>alert(1)</script>"
    await operator.world.add_merchant(script)
    for path in ("/operations/merchant/list", "/operations/audit/list"):
        page = await _read_body(visitor, path)
        assert script not in page
        assert "&lt;script&gt;" in page
