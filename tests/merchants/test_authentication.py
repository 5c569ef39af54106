"""Merchants authenticate with keys, and can access only their own payments."""

import inspect
from uuid import uuid4

import pytest

from payintent.core import access as api_key
from payintent.merchants import access as authentication
from payintent.merchants.access_operations import IssueApiKey, RevokeApiKey
from payintent.operators import access as operator_access
from payintent.runtime.settings import Settings
from tests.support.arrange import BODY, refusal
from tests.support.world import Api

_UNAUTHORIZED = (401, "UNAUTHORIZED")
_UNKNOWN = "pay_" + "0" * 22


async def _create_with(api: Api, headers: dict[str, str]) -> tuple[int, str]:
    defaults = {"Idempotency-Key": str(uuid4())}
    answer = await api.send("POST", "/v1/payments", json=BODY, headers=defaults | headers)
    return (201, "") if answer.status == 201 else refusal(answer)


async def test_merchant_routes_return_401_without_a_valid_key(api: Api) -> None:
    key = api.world.api_key
    last = "0" if key[-1] != "0" else "1"
    replacement = "A" if key[20] != "A" else "B"
    invalid_headers = {
        "none": {},
        "empty": {"Authorization": ""},
        "no scheme": {"Authorization": key},
        "basic": {"Authorization": f"Basic {key}"},
        "bare scheme": {"Authorization": "Bearer"},
        "no space": {"Authorization": f"Bearer{key}"},
        "a tab": {"Authorization": f"Bearer\t{key}"},
        "two keys": {"Authorization": f"Bearer {key} {key}"},
        "quoted": {"Authorization": f'Bearer "{key}"'},
        "cut": {"Authorization": f"Bearer {key[:-1]}"},
        "longer": {"Authorization": f"Bearer {key}0"},
        "checksum": {"Authorization": f"Bearer {key[:-1]}{last}"},
        "mistyped": {"Authorization": f"Bearer {key[:20]}{replacement}{key[21:]}"},
        "test key": {"Authorization": f"Bearer {key.replace('sk_live_', 'sk_test_')}"},
        "well-formed test key": {
            "Authorization": f"Bearer {api_key.make_api_key('sk_test', 'A' * 8, 'A' * 43).text}"
        },
        "lower case": {"Authorization": f"Bearer {key.lower()}"},
        "other header": {"X-Api-Key": key},
        "bytes": {"Authorization": "Bearer \u00e9\u00ff"},
    }
    payment_id = (await api.create()).json["id"]
    for name, headers in invalid_headers.items():
        assert await _create_with(api, headers) == _UNAUTHORIZED, name
        for method, path in (
            ("GET", f"/v1/payments/{payment_id}"),
            ("GET", f"/v1/payments/{_UNKNOWN}"),
            ("POST", f"/v1/payments/{payment_id}/cancel"),
        ):
            assert refusal(await api.send(method, path, headers=headers)) == _UNAUTHORIZED, name
    assert (await api.get(payment_id)).json["status"] == "PENDING"


async def test_the_bearer_scheme_is_case_insensitive_and_allows_several_spaces(api: Api) -> None:
    for scheme in ("bEARER ", "Bearer  ", "bearer" + " " * 20):
        headers = {"Authorization": f"{scheme}{api.world.api_key}"}
        assert await _create_with(api, headers) == (201, ""), scheme


async def test_each_401_response_has_a_www_authenticate_header(api: Api, operator: Api) -> None:
    headers = api.bearer("nonsense")
    callback = f"/v1/callbacks/fake/{api.world.account_id}"
    for client, method, path in (
        *((api, method, path) for method, path in (("POST", "/v1/payments"), ("GET", "/v1/cases"))),
        (api, "GET", "/v1/events"),
        (api, "POST", callback),  # without a signature
        (operator, "GET", "/operator/tax/list"),
        (operator, "POST", "/operator/tax/set"),
        (operator, "POST", "/sign-in"),
    ):
        form = {"data": {"token": "op_x"}} if path == "/sign-in" else {}
        answer = await client.send(
            method, path, headers=headers | {"Origin": operator.base}, **form
        )
        assert (answer.status, answer.headers.getall("WWW-Authenticate")) == (401, ["Bearer"]), path
    authenticated = await api.send("GET", "/v1/cases", headers=api.bearer())
    assert "WWW-Authenticate" not in authenticated.headers


async def test_an_api_key_in_the_query_is_not_accepted(api: Api) -> None:
    answer = await api.send("GET", f"/v1/payments/{_UNKNOWN}?api_key={api.world.api_key}")
    assert refusal(answer) == _UNAUTHORIZED


async def test_a_well_formed_key_with_the_wrong_secret_is_401(api: Api) -> None:
    public_id = api.world.api_key.split("_")[2]
    forged = api_key.make_api_key(api_key.MERCHANT, public_id, "A" * api_key.SECRET_CHARS)
    unknown = api_key.make_api_key(api_key.MERCHANT, "ZZZZZZZZ", "A" * api_key.SECRET_CHARS)
    for key in (forged, unknown):
        assert await _create_with(api, api.bearer(key.text)) == _UNAUTHORIZED


async def test_an_operator_token_is_not_accepted_as_a_merchant_key(api: Api) -> None:
    token = await api.world.operator_token()
    assert await _create_with(api, api.bearer(token)) == _UNAUTHORIZED


async def test_every_key_of_a_merchant_works_until_it_is_revoked(api: Api) -> None:
    issue = IssueApiKey(merchant_id=api.world.merchant_id, name="second")
    second = (await api.world.perform(issue)).api_key
    payment_id = (await api.create()).json["id"]
    response = await api.send("GET", f"/v1/payments/{payment_id}", headers=api.bearer(second))
    assert response.status == 200
    await api.world.perform(RevokeApiKey(public_id=second.split("_")[2]))
    assert await _create_with(api, api.bearer(second)) == _UNAUTHORIZED
    assert await _create_with(api, api.bearer()) == (201, "")


async def test_a_digest_is_compared_in_constant_time() -> None:
    assert "hmac.compare_digest(" in inspect.getsource(authentication.Authenticator)
    assert "hmac.compare_digest(" in inspect.getsource(operator_access.check_operator_token)


async def test_a_payment_of_another_merchant_is_forbidden_and_unchanged(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    payment_id = (await api.create()).json["id"]
    headers = api.bearer(other_merchant.api_key)
    response = await api.send("GET", f"/v1/payments/{payment_id}", headers=headers)
    assert refusal(response) == (403, "FORBIDDEN")
    path = f"/v1/payments/{payment_id}/cancel"
    assert refusal(await api.send("POST", path, headers=headers)) == (403, "FORBIDDEN")
    assert (await api.get(payment_id)).json["status"] == "PENDING"


async def test_unknown_and_invalid_payment_ids_are_not_found(api: Api) -> None:
    created = (await api.create()).json
    for payment_id in (
        _UNKNOWN,
        created["id"][:-1],
        created["id"] + "0",
        created["id"].replace("pay_", "ref_"),
        created["id"].upper(),
        created["checkout_id"],
        "pay_" + "z" * 22,  # more than 128 bits
        "pay_" + "-" * 22,
        "pay_%00",
        "%ff%fe",
        "1",
    ):
        assert refusal(await api.get(payment_id)) == (404, "NOT_FOUND"), payment_id
        path = f"/v1/payments/{payment_id}/cancel"
        answer = await api.send("POST", path, headers=api.bearer())
        assert refusal(answer) == (404, "NOT_FOUND"), payment_id


class TestWithCachedKeys:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"api_key_cache_s": 0.3})

    async def test_a_revocation_takes_effect_when_the_cached_key_expires(self, api: Api) -> None:
        assert await _create_with(api, api.bearer()) == (201, "")
        await api.world.perform(RevokeApiKey(public_id=api.world.api_key.split("_")[2]))
        results = [await _create_with(api, api.bearer())]
        while results[-1] != _UNAUTHORIZED:
            assert len(results) < 5_000
            results.append(await _create_with(api, api.bearer()))
        assert set(results[:-1]) <= {(201, "")}
        assert await _create_with(api, api.bearer()) == _UNAUTHORIZED
