"""Fraud screening over HTTP: denied payments, the response, and the stored data."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from payintent.fraud.model import FraudRule, FraudRuleKind, RiskLevel
from payintent.fraud.operations import AddFraudRule, ListFraudDecisions, RemoveFraudRule
from payintent.merchants.methods_operations import DisablePaymentMethod
from payintent.runtime.settings import Settings
from tests.support.arrange import bring_to, count, payment_of, refusal, select, view
from tests.support.world import Answer, Api, patient

_REPLAYED = "Idempotency-Replayed"
_DAY_S = 24 * 3600


@pytest.fixture
def settings(settings: Settings) -> Settings:
    secret = type(settings.edge_secret)("edge-secret")
    return patient(settings).model_copy(
        update={"edge_secret": secret, "edge_trusted_proxies": "127.0.0.1"}
    )


async def add(api: Api, kind: str, value: str | None = None, **more: Any) -> FraudRule:
    return await api.world.perform(AddFraudRule(kind=FraudRuleKind(kind), value=value, **more))


async def remove(api: Api, rule: FraudRule) -> None:
    await api.world.perform(RemoveFraudRule(rule_id=rule.id))


def fds(answer: Answer) -> dict[str, Any]:
    """Return a denial's fields, and check the envelope in section 7.4."""
    assert (answer.status, list(answer.json)) == (200, ["fds"]), answer.body
    denial = answer.json["fds"]
    assert list(denial) == ["outcome", "code", "message", "risk_level", "risk_score", "rule"]
    assert denial["outcome"] == "DENY"
    return denial


def edge(country: str | None = None, address: str | None = None) -> dict[str, str]:
    """Return a trusted edge's headers about a viewer."""
    values = {"CloudFront-Viewer-Country": country, "X-Forwarded-For": address}
    headers = {name: value for name, value in values.items() if value is not None}
    return {"X-Edge-Secret": "edge-secret"} | headers


async def decisions(api: Api) -> list[tuple[str | None, int]]:
    """List the denials with their rules, oldest first."""
    fraud_decisions = await api.world.perform(ListFraudDecisions(limit=100))
    return [(item.payment_id, item.rule_id) for item in reversed(fraud_decisions)]


async def test_a_denied_create_gets_only_the_fds_object_and_stores_no_payment(api: Api) -> None:
    rule = await add(api, "PAYER", "buyer-1", level=RiskLevel.CRITICAL, score=87)
    answer = await api.create()
    assert fds(answer) == {
        "outcome": "DENY",
        "code": "PAYER_BLOCKED",
        "message": "this payment cannot be made",
        "risk_level": "CRITICAL",
        "risk_score": 87,
        "rule": f"payer:{rule.id}",
    }
    assert answer.headers["Content-Type"] == "application/json"
    assert _REPLAYED not in answer.headers
    assert (await count(api), await count(api, "checkout")) == (0, 0)
    assert await decisions(api) == [(None, rule.id)]
    assert (await api.create(payer_uid="buyer-2")).status == 201


async def test_a_create_is_screened_by_the_fields_that_the_merchant_sent(api: Api) -> None:
    await add(api, "COUNTRY", "DE")
    await add(api, "EMAIL", "@Spam.Example")
    await add(api, "ADDRESS", "0.0.0.0/0")
    await add(api, "ADDRESS", "::/0")
    assert fds(await api.create(country="DE"))["code"] == "COUNTRY_BLOCKED"
    assert fds(await api.create(payer_email="a@SPAM.example"))["code"] == "EMAIL_BLOCKED"
    await add(api, "EMAIL", "@Bücher.example")
    await add(api, "EMAIL", "Jörg@mail.example")
    for spelling in ("a@BÜCHER.example", "a@xn--bcher-kva.example", "JO\u0308RG@mail.example"):
        assert fds(await api.create(payer_email=spelling))["code"] == "EMAIL_BLOCKED", spelling
    assert (await api.create(country="FR", payer_email="a@good.example")).status == 201
    headers = api.bearer() | edge("DE", "192.0.2.7") | {"Idempotency-Key": str(uuid4())}
    body = {"currency": "THB", "amount": "10", "payer_uid": "buyer-1"}
    response = await api.send("POST", "/v1/payments", json=body, headers=headers)
    assert response.status == 201  # the location of the merchant's server is not a risk


async def test_validation_errors_take_precedence_over_screening(api: Api) -> None:
    await add(api, "PAYER", "buyer-1")
    assert refusal(await api.create(currency="XXX")) == (400, "INVALID_CURRENCY")
    assert refusal(await api.create(amount="0")) == (422, "INVALID_AMOUNT")
    assert refusal(await api.create(country="KR")) == (422, "UNSUPPORTED_COUNTRY")
    assert await decisions(api) == []


async def test_the_rule_with_the_highest_score_decides_and_the_oldest_breaks_a_tie(
    api: Api,
) -> None:
    await add(api, "COUNTRY", "DE", score=10, code="LOW_ONE")
    await add(api, "PAYER", "buyer-1", score=60, code="OLDER")
    await add(api, "EMAIL", "a@x.com", score=60, code="YOUNGER")
    await add(api, "PAYER", "buyer-2", score=100)
    answer = await api.create(country="DE", payer_email="a@x.com")
    assert (fds(answer)["code"], fds(answer)["risk_score"]) == ("OLDER", 60)


async def test_rules_of_another_merchant_do_not_apply(api: Api) -> None:
    other = await api.world.add_merchant()
    await add(api, "PAYER", "buyer-1", merchant_id=other.merchant.id)
    await add(api, "PAYER_VELOCITY", count_max=1, window_s=60, merchant_id=other.merchant.id)
    await add(api, "COUNTRY", "DE", merchant_id=other.merchant.id)
    created = await api.create(country="DE")
    assert created.status == 201
    assert (await api.create()).status == 201
    path = f"/v1/checkout/{created.json['checkout_id']}"
    assert "fds" not in (await api.send("GET", path, headers=edge("DE"))).json


async def test_a_denial_is_replayed_for_its_key_for_a_day(api: Api) -> None:
    rule, key = await add(api, "PAYER", "buyer-1"), str(uuid4())
    first = await api.create(key)
    again = await api.create(key)
    assert (fds(again), again.body) == (fds(first), first.body)
    assert again.headers[_REPLAYED] == "true"
    assert refusal(await api.create(key, amount="1")) == (409, "IDEMPOTENCY_CONFLICT")
    assert refusal(await api.create(key, payer_uid="x")) == (409, "IDEMPOTENCY_CONFLICT")
    await remove(api, rule)
    after = await api.create(key)
    assert (after.body, after.headers[_REPLAYED]) == (first.body, "true")
    for method in (api.world.card, api.world.transfer):
        await api.world.perform(DisablePaymentMethod(method_id=method))
    assert (await api.create(key)).body == first.body  # regardless of later checks
    assert await decisions(api) == [(None, rule.id)]
    assert await count(api) == 0


async def test_a_key_can_be_reused_after_a_day_according_to_the_database_clock(api: Api) -> None:
    rule, key = await add(api, "PAYER", "buyer-1"), str(uuid4())
    fds(await api.create(key))
    await api.world.move_clock(_DAY_S - 60)
    assert (await api.create(key)).headers[_REPLAYED] == "true"
    await api.world.move_clock(_DAY_S)
    anew = await api.create(key)
    assert (fds(anew)["code"], _REPLAYED in anew.headers) == ("PAYER_BLOCKED", False)
    await remove(api, rule)
    await api.world.move_clock(3 * _DAY_S)
    created = await api.create(key)
    assert (created.status, _REPLAYED in created.headers) == (201, False)
    replayed = await api.create(key)
    assert (replayed.status, replayed.body) == (201, created.body)


async def test_a_completed_key_replays_its_payment_even_if_a_rule_matches_now(api: Api) -> None:
    key = str(uuid4())
    first = await api.create(key, payer_email="a@x.com", country="DE")
    await add(api, "PAYER", "buyer-1")
    await add(api, "COUNTRY", "DE")
    await add(api, "PAYER_VELOCITY", count_max=1, window_s=60)
    again = await api.create(key, payer_email="a@x.com", country="DE")
    assert (again.status, again.body, again.headers[_REPLAYED]) == (201, first.body, "true")
    assert refusal(await api.create(key, amount="1")) == (409, "IDEMPOTENCY_CONFLICT")
    assert await decisions(api) == []


async def test_concurrent_requests_with_the_same_key_share_a_single_denial(
    api: Api,
) -> None:
    rule, key = await add(api, "PAYER", "buyer-1"), str(uuid4())
    answers = await asyncio.gather(*(api.create(key) for _ in range(8)))
    assert len({answer.body for answer in answers}) == 1
    assert fds(answers[0])["rule"] == f"payer:{rule.id}"
    assert sum(_REPLAYED not in answer.headers for answer in answers) == 1
    assert await decisions(api) == [(None, rule.id)]


async def test_a_velocity_rule_limits_the_payments_that_a_payer_creates(api: Api) -> None:
    rule = await add(api, "PAYER_VELOCITY", count_max=2, window_s=3600)
    assert [(await api.create()).status for _ in range(2)] == [201, 201]
    assert fds(await api.create())["code"] == "VELOCITY_EXCEEDED"
    assert (await api.create(payer_uid="Buyer-1")).status == 201
    other = await api.world.add_merchant()
    headers = api.bearer(other.api_key) | {"Idempotency-Key": str(uuid4())}
    body = {"currency": "THB", "amount": "10", "payer_uid": "buyer-1"}
    assert (await api.send("POST", "/v1/payments", json=body, headers=headers)).status == 201
    await api.world.move_clock(3500)
    fds(await api.create())
    await api.world.move_clock(3700)
    assert [(await api.create()).status for _ in range(3)] == [201, 201, 200]
    assert await decisions(api) == [(None, rule.id)] * 3


async def test_concurrent_creates_cannot_exceed_a_payers_limit(api: Api) -> None:
    await add(api, "PAYER_VELOCITY", count_max=3, window_s=3600)
    answers = await asyncio.gather(*(api.create() for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201] * 3
    assert await count(api) == 3


async def test_a_velocity_rule_limits_the_selections_from_an_address(api: Api) -> None:
    rule = await add(api, "ADDRESS_VELOCITY", count_max=2, window_s=3600)
    created = [await api.create(expires_in=86_400) for _ in range(3)]

    async def chooses(number: int, address: str | None) -> Answer:
        path = f"/v1/checkout/{created[number].json['checkout_id']}/quotes"
        body = {"payment_method_id": api.world.card}
        return await api.send("POST", path, json=body, headers=edge(None, address))

    assert "quote" in (await chooses(0, "192.0.2.7")).json
    assert "quote" in (await chooses(0, "192.0.2.7")).json  # a method change counts as well
    created_before = len(api.world.gateway.created)
    assert fds(await chooses(1, "::ffff:192.0.2.7"))["rule"] == f"address_velocity:{rule.id}"
    assert (await payment_of(api, created[1])).status == "PENDING"
    assert len(api.world.gateway.created) == created_before
    assert "quote" in (await chooses(1, "192.0.2.8")).json
    for address in ("2001:db8:0:1::1", "2001:db8:0:1::2"):
        assert "quote" in (await chooses(2, address)).json
    fds(await chooses(2, "2001:db8:0:1:ffff::3"))  # a /64 network counts as one address
    assert "quote" in (await chooses(2, "2001:db8:0:2::1")).json
    for _ in range(3):
        assert "quote" in (await chooses(2, None)).json  # not counted
    await api.world.move_clock(3500)
    fds(await chooses(1, "192.0.2.7"))
    await api.world.move_clock(3700)
    assert "quote" in (await chooses(1, "192.0.2.7")).json
    rows = await api.world.rows(
        "SELECT DISTINCT octet_length(address_digest) AS n FROM buyer_attempt"
    )
    assert [row["n"] for row in rows] == [32]  # a keyed digest instead of the address


async def test_concurrent_selections_cannot_exceed_an_addresss_limit(
    api: Api,
) -> None:
    await add(api, "ADDRESS_VELOCITY", count_max=3, window_s=3600)
    created = [await api.create() for _ in range(8)]
    answers = await asyncio.gather(
        *(
            api.send(
                "POST",
                f"/v1/checkout/{item.json['checkout_id']}/quotes",
                json={"payment_method_id": api.world.card},
                headers=edge(None, "192.0.2.7"),
            )
            for item in created
        )
    )
    assert sum("quote" in answer.json for answer in answers) == 3
    assert sum("fds" in answer.json for answer in answers) == 5
    assert len(api.world.gateway.created) == 3


ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/checkout/{}", None),
    ("GET", "/v1/checkout/{}/quotes", None),
    ("POST", "/v1/checkout/{}/quotes", {"payment_method_id": 1}),
    ("POST", "/v1/checkout/{}/cancel", None),
    ("PATCH", "/v1/checkout/{}", {"payer_email": "new@example.com"}),
]
PAGES = [
    ("GET", "/c/{}"),
    ("POST", "/c/{}/select"),
    ("POST", "/c/{}/cancel"),
    ("GET", "/c/{}/return"),
]


async def test_every_checkout_route_denies_without_leaking_data(api: Api) -> None:
    created = await api.create(payer_email="secret@example.com", metadata={"order_id": "A-1"})
    checkout_id = created.json["checkout_id"]
    before = (await api.get(created.json["id"])).body
    rule = await add(api, "COUNTRY", "DE")
    bodies = set()
    for method, path, body in ROUTES:
        options = {} if body is None else {"json": body}
        answer = await api.send(method, path.format(checkout_id), headers=edge("DE"), **options)
        assert fds(answer)["rule"] == f"country:{rule.id}", path
        assert answer.headers.getall("Cache-Control") == ["no-store"]
        bodies.add(answer.body)
    assert len(bodies) == 1
    for method, path in PAGES:
        page = await api.send(method, path.format(checkout_id), headers=edge("DE"))
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        bodies.add(page.body)
    for text in ("1590", "THB", "Nimbus", "A-1", "secret@", "buyer-1", checkout_id, "pay_"):
        assert not [item for item in bodies if text.encode() in item], text
    assert (await api.get(created.json["id"])).body == before
    assert api.world.gateway.created == []
    assert (await payment_of(api, created)).payer_email == "secret@example.com"
    assert await decisions(api) == [(created.json["id"], rule.id)]
    for viewer in (edge("FR"), edge(), {"CloudFront-Viewer-Country": "DE"}):
        assert (
            "fds" not in (await api.send("GET", f"/v1/checkout/{checkout_id}", headers=viewer)).json
        )


async def test_a_checkout_is_screened_by_payer_and_address_in_every_status(api: Api) -> None:
    created = [await api.create(payer_uid=f"buyer-{number}") for number in range(4)]
    for answer, status in zip(created, ("PENDING", "PROCESSING", "PAID", "CANCELLED"), strict=True):
        await bring_to(api, answer, status)
    rules = [await add(api, "PAYER", f"buyer-{number}") for number in range(4)]
    for answer, rule in zip(created, rules, strict=True):
        assert fds(await view(api, answer))["rule"] == f"payer:{rule.id}"
        await remove(api, rule)
        assert "fds" not in (await view(api, answer)).json
    await add(api, "ADDRESS", "192.0.2.0/24")
    path = f"/v1/checkout/{created[0].json['checkout_id']}"
    assert fds(await api.send("GET", path, headers=edge(None, "192.0.2.9")))
    assert "fds" not in (await api.send("GET", path, headers=edge(None, "192.0.3.9"))).json


async def test_each_rule_records_at_most_one_decision_per_payment(api: Api) -> None:
    created, other = await api.create(), await api.create()
    first = await add(api, "PAYER", "buyer-1", score=1)
    for _ in range(3):
        fds(await view(api, created))
    fds(await view(api, other))
    second = await add(api, "PAYER", "buyer-1", score=2)
    await asyncio.gather(*(view(api, created) for _ in range(5)))
    assert await decisions(api) == [
        (created.json["id"], first.id),
        (other.json["id"], first.id),
        (created.json["id"], second.id),
    ]


async def test_a_blocked_email_is_not_stored_and_cannot_pay(api: Api) -> None:
    created = await api.create(payer_email="good@example.com")
    await add(api, "EMAIL", "bad@example.com")
    path = f"/v1/checkout/{created.json['checkout_id']}"
    email = {"payer_email": "BAD@example.com"}
    assert fds(await api.send("PATCH", path, json=email))["code"] == "EMAIL_BLOCKED"
    fds(await select(api, created, **email))
    form = email | {"method": f"{api.world.card}|THB|1590.00"}
    page = await api.send("POST", f"/c/{created.json['checkout_id']}/select", data=form)
    assert (page.status, "This payment can’t be processed" in page.body.decode()) == (200, True)
    assert (await payment_of(api, created)).payer_email == "good@example.com"
    assert api.world.gateway.created == []
    assert (await api.send("PATCH", path, json={"payer_email": "b@example.com"})).status == 200
    assert (await select(api, created)).status == 200


async def test_other_merchant_routes_are_not_screened(api: Api) -> None:
    created = await api.create()
    await add(api, "PAYER", "buyer-1")
    await add(api, "COUNTRY", "DE")
    payment = f"/v1/payments/{created.json['id']}"
    for method, path in (
        ("GET", payment),
        ("GET", "/v1/payments"),
        ("GET", "/v1/catalog"),
        ("POST", f"{payment}/cancel"),
    ):
        answer = await api.send(method, path, headers=api.bearer() | edge("DE"))
        assert (answer.status, b"fds" in answer.body) == (200, False), path


async def test_an_unknown_checkout_is_not_found_even_for_a_denied_buyer(api: Api) -> None:
    await add(api, "COUNTRY", "DE")
    path = "/v1/checkout/cs_0000000000000000"
    assert refusal(await api.send("GET", path, headers=edge("DE"))) == (404, "CHECKOUT_NOT_FOUND")
