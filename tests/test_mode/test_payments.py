"""The test gateway: a test key's actions on its payments are handled as at any other gateway."""

from dataclasses import replace
from uuid import uuid4

import asyncpg
import pytest

from payintent.checkout.languages import LOCALES, load_language
from payintent.core.errors import RefusedError
from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.access_operations import IssueApiKey
from payintent.test_mode.model import DECLINED_CARDS, TEST_CARDS
from tests.http.builtin_gateway import act, advance, inquire, side
from tests.refunds.requests import post_refund as refund
from tests.refunds.requests import process_refunds as send_refunds
from tests.support.arrange import payment_of, refusal, select, view
from tests.support.world import Answer, Api

__all__ = ["side"]


async def _events(side: Api, created: Answer) -> list[str]:
    return await side.world.events(await payment_of(side, created))


async def _cases(side: Api, created: Answer) -> list[str]:
    return await side.world.cases(await payment_of(side, created))


async def test_a_test_key_can_complete_its_payment_without_a_page(side: Api) -> None:
    created = await side.create()
    paid = await act(side, created, "pay")
    assert (paid.status, paid.json["status"], paid.json["provider"]) == (200, "PAID", "test")
    assert paid.json == (await side.get(created.json["id"])).json
    assert await _events(side, created) == ["payment.completed"]
    [callback] = await side.world.rows("SELECT account_id, session_id FROM callback")
    assert (
        callback["account_id"] == side.world.account_id
    )  # it was received like any other gateway's callback


async def test_a_payment_with_a_selected_method_is_paid_through_that_session(side: Api) -> None:
    created = await side.create()
    assert (await select(side, created)).status == 200
    assert (await act(side, created, "pay")).json["status"] == "PAID"
    [count] = await side.world.rows("SELECT count(*) AS n FROM session")
    assert count["n"] == 1


@pytest.mark.parametrize("code", sorted(DECLINED_CARDS))
async def test_a_decline_ends_the_payment_with_its_reason(side: Api, code: str) -> None:
    created = await side.create()
    answer = await act(side, created, "decline", code=code)
    reason = "UNKNOWN" if code == "processing_error" else "DECLINED"
    assert (answer.json["status"], answer.json["failure_reason"]) == ("FAILED", reason)
    assert await _events(side, created) == ["payment.failed"]


async def test_the_card_determines_the_outcome_of_a_payment(side: Api) -> None:
    outcomes = {
        "4000 0000 0000 0002": ("FAILED", []),
        "4000002500003155": ("PAID", []),
        "4000009900000020": ("PAID", []),
        "4000009900000079": ("FAILED", ["AMOUNT_MISMATCH"]),
        "4000009900000087": ("FAILED", ["AMOUNT_MISMATCH"]),
        "4000000000000259": ("PAID", ["DISPUTE"]),
    }
    for card, (status, cases) in outcomes.items():
        created = await side.create()
        assert (await act(side, created, "pay", card=card)).json["status"] == status, card
        assert await _cases(side, created) == cases, card
        assert len(await _events(side, created)) == 1, card


async def test_a_capture_after_a_decline_opens_a_case_and_does_not_change_the_payment(
    side: Api,
) -> None:
    created = await side.create()
    answer = await act(side, created, "pay", card="4000009900000103")
    assert answer.json["status"] == "FAILED"
    assert await _events(side, created) == ["payment.failed"]
    assert await _cases(side, created) == ["LATE_PAYMENT"]


async def test_a_result_that_is_not_reported_is_found_by_inquiry(side: Api) -> None:
    created = await side.create()
    answer = await act(side, created, "pay", card="4000009900000046")
    assert answer.json["status"] == "PROCESSING"
    await inquire(side)
    assert (await side.get(created.json["id"])).json["status"] == "PAID"


async def test_a_delayed_decision_follows_the_test_clock(side: Api) -> None:
    created = await side.create()
    answer = await act(side, created, "pay", card="4000009900000012")
    assert answer.json["status"] == "PROCESSING"
    await inquire(side)
    assert (await side.get(created.json["id"])).json["status"] == "PROCESSING"
    await advance(side, 30)
    await inquire(side)
    assert (await side.get(created.json["id"])).json["status"] == "PAID"


async def test_a_payment_that_the_buyer_abandons_expires(side: Api) -> None:
    created = await side.create()
    assert (await select(side, created)).status == 200
    await advance(side, 1_801)
    assert refusal(await act(side, created, "pay")) == (409, "INVALID_PAYMENT_STATE")
    [session] = await side.world.rows("SELECT expires_at <= clock() AS is_over FROM test_session")
    assert session["is_over"]


@pytest.mark.parametrize(
    ("card", "states"),
    [
        ("4242424242424242", ["SUCCEEDED", "SUCCEEDED"]),
        ("4000009900000160", ["PENDING", "SUCCEEDED"]),
        ("4000009900000178", ["FAILED", "FAILED"]),
    ],
)
async def test_the_card_determines_the_outcome_of_refunds(
    side: Api, card: str, states: list[str]
) -> None:
    created = await side.create()
    assert (await act(side, created, "pay", card=card)).json["status"] == "PAID"
    response = await refund(side, created, amount="90.00")
    assert response.status == 201
    for state in states:
        await send_refunds(side.world)
        path = f"/v1/refunds/{response.json['id']}"
        answer = await side.send("GET", path, headers=side.bearer())
        assert answer.json["status"] == state
        await advance(side, 60)


async def test_a_dispute_is_opened_and_decided_once(side: Api) -> None:
    created = await side.create()
    assert refusal(await act(side, created, "dispute")) == (409, "INVALID_PAYMENT_STATE")
    await act(side, created, "pay")
    for state in ("open", "won", "won"):
        answer = await act(side, created, "dispute", state=state)
        assert (answer.status, answer.json["status"]) == (200, "PAID")
        disputes = await side.send("GET", "/v1/disputes", headers=side.bearer())
        assert [dispute["state"] for dispute in disputes.json["data"]] == [state]
    assert refusal(await act(side, created, "dispute", state="lost"))[0] == 409
    assert await _cases(side, created) == ["DISPUTE"]


async def test_an_idempotency_key_runs_a_single_request_once(side: Api) -> None:
    created, other, key = await side.create(), await side.create(), str(uuid4())
    first = await act(side, created, "decline", key)
    again = await act(side, created, "decline", key)
    assert (again.status, again.json) == (200, first.json)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    for wrong in (
        await act(side, other, "decline", key),
        await act(side, created, "decline", key, code="expired_card"),
    ):
        assert refusal(wrong) == (409, "IDEMPOTENCY_CONFLICT")
    assert refusal(await act(side, created, "decline")) == (409, "INVALID_PAYMENT_STATE")
    assert (await act(side, other, "pay", key)).json["status"] == "PAID"  # a different operation


async def test_a_repeated_key_sends_the_callback_that_the_first_request_did_not_send(
    side: Api,
) -> None:
    created, key = await side.create(), str(uuid4())
    await act(side, created, "pay", key, card="4000009900000046")  # no callback was sent
    await side.world.rows("UPDATE test_session SET card = '4242424242424242'")
    again = await act(side, created, "pay", key, card="4000009900000046")
    assert (again.status, again.json["status"]) == (200, "PAID")


@pytest.mark.parametrize(
    ("amount", "status", "end"),
    [("666.03", 200, "FAILED"), ("666.04", 200, "FAILED")],
)
async def test_some_amounts_are_declined_for_every_card(
    side: Api, amount: str, status: int, end: str
) -> None:
    created = await side.create(amount=amount)
    answer = await act(side, created, "pay")
    assert (answer.status, answer.json["status"]) == (status, end)


@pytest.mark.parametrize("amount", ["666.01", "666.02"])
async def test_some_amounts_do_not_open_a_session(side: Api, amount: str) -> None:
    created = await side.create(amount=amount)
    for _ in range(7):  # and it does not count as an outage
        assert refusal(await act(side, created, "pay")) == (502, "PG_UPSTREAM_ERROR")
    await inquire(side)
    assert (await act(side, await side.create(), "pay")).json["status"] == "PAID"


async def test_unknown_values_are_refused(side: Api) -> None:
    created = await side.create()
    for action, body in (
        ("pay", {"card": "4111111111111111"}),
        ("pay", {"card": 1}),
        ("decline", {"code": "x"}),
        ("dispute", {"state": "inquiry"}),
    ):
        assert refusal(await act(side, created, action, **body)) == (400, "BAD_REQUEST")


async def test_a_live_key_cannot_use_the_test_routes(api: Api) -> None:
    created = await api.create()
    for action in ("pay", "decline", "dispute"):
        assert refusal(await act(api, created, action)) == (403, "FORBIDDEN"), action
    assert (await api.get(created.json["id"])).json["status"] == "PENDING"


async def test_a_test_key_of_another_merchant_is_refused(side: Api) -> None:
    created = await side.create()
    other = await side.world.add_merchant()
    issued = await side.world.perform(IssueApiKey(merchant_id=other.merchant.id, test=True))
    async with Api(side.base, replace(side.world, api_key=issued.api_key)) as theirs:
        for action in ("pay", "decline", "dispute"):
            assert refusal(await act(theirs, created, action)) == (403, "FORBIDDEN"), action
    assert (await side.get(created.json["id"])).json["status"] == "PENDING"


async def test_a_live_merchant_cannot_have_an_account_at_the_test_gateway(side: Api) -> None:
    for owner in (None, side.world.merchant_id):
        account = AddAccount(
            provider="test",
            base_url="http://gateway.test",
            credentials={"signing_secret": "s"},
            merchant_id=owner,
        )
        with pytest.raises(RefusedError, match="only have test accounts"):
            await side.world.perform(account)
    with pytest.raises(asyncpg.CheckViolationError, match="provider_account_test_gateway"):
        await side.world.rows(
            "INSERT INTO provider_account (provider, base_url) VALUES ('test', 'http://x.test')"
        )
    with pytest.raises(asyncpg.ForeignKeyViolationError, match="test_session_mode"):
        await side.world.rows(
            "INSERT INTO test_session (session_id, account_id, amount_minor, currency, return_url,"
            " expires_at, status) SELECT gen_random_uuid(), id, 1, 'THB', '', clock(), 'open'"
            " FROM provider_account WHERE livemode"
        )


async def test_a_callback_without_the_test_gateways_signature_is_refused(side: Api) -> None:
    path = f"/v1/callbacks/test/{side.world.account_id}"
    for headers in ({}, {"test-signature": "0" * 64}):
        answer = await side.send("POST", path, data=b'{"id":"a","session_id":"b"}', headers=headers)
        assert answer.status == 401


async def _enter(side: Api, path: str, **form: str) -> Answer:
    return await side.send("POST", path, data=form)


async def _page(side: Api, created: Answer) -> str:
    """Select the test card as a buyer; return the path of the next page."""
    assert (await select(side, created)).status == 200
    url = (await view(side, created)).json["next_action"]["redirect"]["url"]
    return "/c/test/card/" + url.rpartition("/")[2]


async def test_the_card_page_accepts_a_card_and_redirects_back(side: Api) -> None:
    created = await side.create()
    path = await _page(side, created)
    response = await side.send("GET", path)
    assert response.status == 200
    assert "Test mode: you won’t be charged" in response.body.decode()
    assert b"4000002500003155" in response.body
    wrong = await _enter(side, path, card="1234")
    assert wrong.status == 400
    assert b"not a test card" in wrong.body
    answer = await _enter(side, path, card="4242 4242 4242 4242")
    assert answer.status == 303
    assert (await side.get(created.json["id"])).json["status"] == "PAID"
    assert b"<h2>Paid</h2>" in (await side.send("GET", path)).body
    assert (await _enter(side, path, card="4242424242424242")).status == 303


@pytest.mark.parametrize(("reply", "end"), [("approve", "PAID"), ("fail", "FAILED")])
async def test_the_card_page_asks_for_3_d_secure(side: Api, reply: str, end: str) -> None:
    created = await side.create()
    path = await _page(side, created)
    response = await _enter(side, path, card="4000002500003155")
    assert response.headers["Location"] == path
    assert b"3-D Secure" in (await side.send("GET", path)).body
    assert (await side.get(created.json["id"])).json["status"] == "PROCESSING"
    await _enter(side, path, challenge=reply)
    assert (await side.get(created.json["id"])).json["status"] == end


async def test_a_buyer_who_cancels_at_the_card_page_can_select_again(side: Api) -> None:
    created = await side.create()
    path = await _page(side, created)
    assert (await _enter(side, path, cancel="1")).status == 303
    assert (await side.get(created.json["id"])).json["status"] == "PROCESSING"
    assert await _page(side, created) != path


async def test_the_card_page_is_in_the_language_of_the_checkout(side: Api) -> None:
    created = await side.create()
    data = {"method": f"{side.world.card}||"}
    chosen = f"/c/{created.json['checkout_id']}/select?lang=ja"
    assert (await side.send("POST", chosen, data=data)).status == 303
    url = (await view(side, created)).json["next_action"]["redirect"]["url"]
    path = "/c/test/card/" + url.rpartition("/")[2]
    refused = (await _enter(side, path, card="1")).body.decode()
    assert '<html lang="ja" dir="ltr">' in refused
    assert "テスト用カードではありません" in refused
    assert (await _enter(side, path, card="4000009900000012")).status == 303
    deciding = await side.send("GET", path, headers={"Accept-Language": "th"})
    assert "<h2>お支払いを処理しています</h2>" in deciding.body.decode()


def test_every_card_describes_its_outcome_in_every_language() -> None:
    for locale in LOCALES:
        outcomes = [load_language(locale).t(card.title) for card in TEST_CARDS.values()]
        assert len(set(outcomes)) == len(TEST_CARDS)


async def test_an_unknown_card_page_is_not_found(side: Api) -> None:
    for name in ("sess_" + "0" * 22, "x"):
        assert (await side.send("GET", f"/c/test/card/{name}")).status == 404
