"""Gateway callbacks over HTTP are verified with the secret of one account, and stored once."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.support.arrange import (
    DECLINED,
    bring_to,
    callback,
    captured,
    count,
    payment_of,
    refusal,
)
from tests.support.installed_methods import add_simulator_account
from tests.support.world import Api


async def _open(api: Api) -> tuple[Any, Any]:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    return created, (await payment_of(api, created)).session_id


async def test_a_verified_callback_settles_the_payment_and_is_acknowledged(
    api: Api,
) -> None:
    created, session_id = await _open(api)
    answer = await callback(api, session_id, captured())
    assert (answer.status, answer.body) == (200, b'{"received":true}')
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert (await api.get(created.json["id"])).json["status"] == "PAID"


async def test_a_callback_with_a_wrong_signature_gets_a_401_and_is_not_stored(api: Api) -> None:
    created, session_id = await _open(api)
    for signature in ("wrong", " ", api.world.signing_secret + "x"):
        answer = await callback(api, session_id, captured(), signature=signature)
        assert refusal(answer) == (401, "UNAUTHORIZED")
    path = f"/v1/callbacks/fake/{api.world.account_id}"
    assert refusal(await api.send("POST", path, data=b"\xff\x00")) == (401, "UNAUTHORIZED")
    assert refusal(await api.send("POST", path, headers=api.bearer()))[0] == 401
    assert await count(api, "callback") == 0
    assert (await api.get(created.json["id"])).json["status"] == "PROCESSING"


async def test_an_unknown_account_or_provider_is_not_found(api: Api) -> None:
    here = api.world.account_id
    signed = {"fake-signature": api.world.signing_secret}
    body = json.dumps({"id": "1"})
    for path in (
        *("fake/999", "fake/0", "fake/-1", "fake/x", f"fake/{'9' * 19}", f"fake/{'9' * 5_000}"),
        *(f"other/{here}", f"FAKE/{here}", f"simulator/{here}", "fake/\u0661", f"fake/{here}%20"),
    ):
        answer = await api.send("POST", f"/v1/callbacks/{path}", data=body, headers=signed)
        assert refusal(answer) == (404, "NOT_FOUND"), path[:40]
    assert await count(api, "callback") == 0


async def test_an_account_accepts_only_its_own_provider(api: Api) -> None:
    settings = api.world.service.settings
    other = await add_simulator_account(settings, signing_secret="another-secret")
    signed = {"fake-signature": "another-secret"}
    answer = await api.send(
        "POST", f"/v1/callbacks/fake/{other}", data=b'{"id":"1"}', headers=signed
    )
    assert refusal(answer) == (404, "NOT_FOUND")


async def test_a_callback_signed_with_the_secret_of_another_account_is_rejected(api: Api) -> None:
    created, session_id = await _open(api)
    other = await api.world.add_account("http://other.test", signing_secret="another-secret")
    assert (await callback(api, session_id, captured(), signature="another-secret")).status == 401
    body = json.dumps({"id": "x", "session_id": str(session_id), "report": captured()})
    answer = await api.send(
        "POST",
        f"/v1/callbacks/fake/{other}",
        data=body,
        headers={"fake-signature": "another-secret"},
    )
    assert answer.status == 200  # the session is unknown to this account
    assert (await api.get(created.json["id"])).json["status"] == "PROCESSING"


async def test_the_adapter_limits_the_size_of_a_callback(api: Api) -> None:
    path = f"/v1/callbacks/fake/{api.world.account_id}"
    signed = {"fake-signature": api.world.signing_secret}
    for size, status in ((16 * 1024, 200), (16 * 1024 + 1, 413)):
        body = json.dumps({"id": "big"})
        answer = await api.send("POST", path, data=body + " " * (size - len(body)), headers=signed)
        assert answer.status == status
    assert refusal(answer) == (413, "BAD_REQUEST")


async def test_a_callback_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    """The valid signature is not checked: no bytes are hashed."""
    path = f"/v1/callbacks/fake/{api.world.account_id}"
    for headers in ({"fake-signature": api.world.signing_secret}, {"fake-signature": "wrong"}):
        answer = await api.send("POST", path, data=b"{" * (16 * 1024 + 1), headers=headers)
        assert refusal(answer) == (413, "BAD_REQUEST")
    assert await count(api, "callback") == 0


async def test_a_callback_for_an_unknown_session_is_stored_and_acknowledged(api: Api) -> None:
    assert (await callback(api, uuid4(), captured())).status == 200
    assert (await callback(api, None, None, callback_id="ping")).status == 200
    rows = await api.world.service.database.fetch(
        "SELECT callback_id, applied_at FROM callback ORDER BY callback_id"
    )
    assert [(row["callback_id"], row["applied_at"] is None) for row in rows] == [
        ("cb-1", True),
        ("ping", False),
    ]


@pytest.mark.parametrize("report", [captured(), DECLINED], ids=["paid", "declined"])
async def test_a_repeated_callback_is_acknowledged_without_effect(
    api: Api, report: dict[str, Any]
) -> None:
    created, session_id = await _open(api)
    await callback(api, session_id, report)
    before = (await api.get(created.json["id"])).body
    again = await callback(api, session_id, report)
    other_bytes = await callback(api, session_id, report, callback_id="cb-2")
    assert (again.status, other_bytes.status) == (200, 200)
    assert (await api.get(created.json["id"])).body == before
    assert await count(api, "event") == 1
    assert await count(api, "money_case") == 0


async def test_a_capture_after_a_decline_leaves_the_payment_failed_and_opens_a_case(
    api: Api,
) -> None:
    created, session_id = await _open(api)
    await callback(api, session_id, DECLINED)
    assert (await callback(api, session_id, captured(), callback_id="late")).status == 200
    assert (await api.get(created.json["id"])).json["status"] == "FAILED"
    assert len(await api.world.cases(await payment_of(api, created))) == 1
