"""The wallet routes: the transactions to send, access, expiry, and posted hashes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from eth_abi import decode, encode
from eth_utils import keccak, to_checksum_address

from payintent.chains.operations import SetToken
from payintent.core import ids
from payintent.merchants.model import ExpectedToken
from payintent.onchain.operations import SetChain
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment, Session, SessionStatus
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.arrange import refusal
from tests.support.contracts import (
    CONTRACT,
    RECEIVER,
    TOKENS,
    USDT,
    bill,
    contract_service,
    offer_tokens,
    session_path,
)
from tests.support.fakes import FakeGateway, declined
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_USDT = "0xdAC17F958D2ee523a2206206994597C13D831ec7"  # Tether's own contract on Ethereum
_PAYER = "0x52908400098527886E0F7030069857D2E4169EE7"
_HASH = "0x" + 64 * "a"


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def _bill(api: Api, symbol: str = "USDT", chain: str = "native") -> tuple[Payment, Session]:
    return await bill(api.world, (await offer_tokens(api.world, chain))[symbol])


async def _view(api: Api, session: Session) -> Any:
    response = await api.send("GET", session_path(session))
    assert response.status == 200, response.body
    return response.json


async def _post(api: Api, session: Session, tx_hash: Any = _HASH, step: Any = "pay") -> Answer:
    body = {"tx_hash": tx_hash, "step": step}
    return await api.send("POST", f"{session_path(session)}/transactions", json=body)


def _call(signature: str, *arguments: Any) -> str:
    """Encode a call with eth-abi."""
    types = signature.partition("(")[2].removesuffix(")").split(",")
    return "0x" + (keccak(text=signature)[:4] + encode(types, arguments)).hex()


async def test_a_token_payment_starts_with_an_allowance_and_its_calls_match_eth_abi(
    api: Api,
) -> None:
    payment, session = await _bill(api, "USDT", "ethereum")
    view = await _view(api, session)
    amount, deadline = 25_500_000, int(payment.expires_at.timestamp())
    uuid = bytes.fromhex(view["pay_uuid"][2:])
    assert len(uuid) == 16
    assert (view["amount"], view["amount_smallest_unit"]) == ("25.5", str(amount))
    assert (view["deadline"], view["status"], view["payable"]) == (
        deadline,
        "awaiting_payment",
        True,
    )
    assert view["token"] == {
        "symbol": "USDT",
        "address": _USDT,
        "decimals": 6,
        "native": False,
        "approve_zero_first": True,
    }
    steps = [(step["kind"], step["when"], step["to"], step["value"]) for step in view["steps"]]
    assert steps == [
        ("approve_reset", "allowance_nonzero_lt_amount", _USDT, "0x0"),
        ("approve", "allowance_lt_amount", _USDT, "0x0"),
        ("pay", "always", to_checksum_address(CONTRACT), "0x0"),
    ]
    assert [step["data"] for step in view["steps"]] == [
        _call("approve(address,uint256)", CONTRACT, 0),
        _call("approve(address,uint256)", CONTRACT, amount),
        _call("pay(bytes16,address,uint256,uint256)", uuid, _USDT, amount, deadline),
    ]


async def test_the_native_coin_is_paid_in_a_single_step(api: Api) -> None:
    payment, session = await _bill(api, "NATIVED")
    view = await _view(api, session)
    amount, deadline = 25_500_000_000_000_000_000, int(payment.expires_at.timestamp())
    uuid, coin = bytes.fromhex(view["pay_uuid"][2:]), "0x" + 40 * "0"
    assert (view["token"]["address"], view["token"]["native"]) == (None, True)
    [step] = view["steps"]
    assert (step["kind"], step["to"], step["value"]) == (
        "pay",
        to_checksum_address(CONTRACT),
        hex(amount),
    )
    assert step["data"] == _call(step["function"], uuid, coin, amount, deadline)
    assert step["args"] == [
        {"name": "uuid", "type": "bytes16", "value": f"0x{uuid.hex()}"},
        {"name": "token", "type": "address", "value": coin},
        {"name": "amount", "type": "uint256", "value": str(amount)},
        {"name": "deadline", "type": "uint256", "value": str(deadline)},
    ]
    assert view["checks"] == {
        "balance": {"method": "eth_getBalance"},
        "already_paid": {
            "to": to_checksum_address(CONTRACT),
            "data": _call("is_paid(bytes16,address,uint256)", uuid, coin, amount),
        },
    }


async def test_the_checks_match_eth_abi_when_the_payer_is_filled_in(api: Api) -> None:
    _, session = await _bill(api, "USDT", "ethereum")
    checks = (await _view(api, session))["checks"]
    calls = {
        name: check["data"].replace("{payer}", _PAYER[2:].lower()) for name, check in checks.items()
    }
    assert calls["balance"] == _call("balanceOf(address)", _PAYER)
    assert calls["allowance"] == _call("allowance(address,address)", _PAYER, CONTRACT)
    paid = bytes.fromhex(calls["already_paid"][10:])
    assert decode(["bytes16", "address", "uint256"], paid)[1:] == (_USDT.lower(), 25_500_000)
    assert [check["data"].count("{payer}") for check in checks.values()] == [1, 1, 0]


async def test_every_address_has_a_checksum(api: Api) -> None:
    _, session = await _bill(api, "USDT", "ethereum")
    view = await _view(api, session)
    chain = (await api.send("GET", "/v1/chains/ethereum")).json
    addresses = [
        *(view["contract_address"], view["receiver"], view["token"]["address"]),
        *(step["to"] for step in [*view["steps"], *view["checks"].values()]),
        *(chain["contract_address"], chain["tokens"][0]["address"]),
    ]
    assert addresses == [to_checksum_address(address) for address in addresses]
    assert view["receiver"] == to_checksum_address(RECEIVER)


@pytest.mark.parametrize("slug", TOKENS)
async def test_a_wallet_can_add_every_chain(api: Api, slug: str) -> None:
    before = (await api.send("GET", f"/v1/chains/{slug}")).json
    wallet = before["wallet_chain"]
    assert wallet.keys() == {"chainId", "chainName", "nativeCurrency"}
    assert int(wallet["chainId"], 16) == before["network_id"]
    assert 1 <= len(wallet["nativeCurrency"]["symbol"]) <= 6
    urls = {"public_rpc_urls": ["https://rpc.test"], "explorer_urls": ["https://explorer.test"]}
    await api.world.perform(SetChain(chain=slug, **urls))
    after = (await api.send("GET", f"/v1/chains/{slug}")).json["wallet_chain"]
    assert after == wallet | {
        "rpcUrls": ["https://rpc.test"],
        "blockExplorerUrls": ["https://explorer.test"],
    }
    _, session = await _bill(api, "USDT", slug)
    assert (await _view(api, session))["chain"]["wallet_chain"] == after


async def test_the_native_coin_has_its_real_name_outside_the_wallet_data(api: Api) -> None:
    view = (await api.send("GET", "/v1/chains/native")).json
    assert view["native_currency"]["symbol"] == "NATIVED"
    assert view["wallet_chain"]["nativeCurrency"]["symbol"] == "NATVD"


async def test_a_wallet_link_opens_the_hosted_page_through_a_code_that_expires(
    api: Api,
) -> None:
    payment, session = await _bill(api)
    links = (await _view(api, session))["links"]
    assert payment.checkout_id not in str(links)
    assert "eip681" not in links  # the token needs an allowance first
    before, _, code = links["metamask"].partition("/wallet/open/")
    assert before == "https://link.metamask.io/dapp/pay.test/c"
    response = await api.send("GET", f"/c/wallet/open/{code}?lang=ja")
    assert (response.status, response.headers["Location"]) == (
        303,
        f"/c/{payment.checkout_id}?lang=ja",
    )
    assert response.headers["Cache-Control"] == "no-store"
    for forged in (code[:-1] + ("A" if code[-1] != "A" else "B"), code[1:], "", "x", "%00", "ä"):
        assert (await api.send("GET", f"/c/wallet/open/{forged}")).status == 404
    await api.world.move_clock(15 * 60)
    expired = await api.send("GET", f"/c/wallet/open/{code}")
    assert (expired.status, "We couldn’t find this payment" in expired.body.decode()) == (404, True)


async def test_a_native_coin_payment_has_an_eip681_link(api: Api) -> None:
    _, session = await _bill(api, "NATIVED")
    view = await _view(api, session)
    [step] = view["steps"]
    uuid, coin, amount, deadline = (argument["value"] for argument in step["args"])
    assert int(step["value"], 16) == int(amount)
    assert view["links"]["eip681"] == (
        f"ethereum:{step['to']}@612055/pay?bytes16={uuid}&address={coin}"
        f"&uint256={amount}&uint256={deadline}&value={amount}"
    )


async def test_an_id_that_is_not_an_onchain_session_is_not_found(api: Api) -> None:
    _, card_session = await bill(api.world, api.world.card)
    payment, session = await _bill(api)
    session_id = ids.format_id(ids.SESSION, session.id)
    for invalid_id in (
        ids.format_id(ids.SESSION, card_session.id),
        *(
            "sess_0000000000000000000001",
            "sess_",
            "x",
            session_id[:-1],
            session_id.swapcase(),
            f"{session_id}0",
        ),
        *(
            ids.format_id(ids.PAYMENT, session.id),
            ids.format_id(ids.PAYMENT, payment.id),
            str(session.id),
        ),
    ):
        path = f"/v1/onchain/sessions/{invalid_id}"
        assert refusal(await api.send("GET", path)) == (404, "NOT_FOUND"), invalid_id
        posted = await api.send(
            "POST", f"{path}/transactions", json={"tx_hash": _HASH, "step": "pay"}
        )
        assert refusal(posted) == (404, "NOT_FOUND"), invalid_id


async def test_a_failed_or_replaced_session_is_gone(api: Api) -> None:
    methods = await offer_tokens(api.world)
    failed, failed_session = await bill(api.world, methods["USDT"])
    await api.world.report(failed, failed_session.id, declined())
    changed, replaced = await bill(api.world, methods["USDT"])
    current = (await api.world.select(changed, methods["NATIVED"])).session
    for session in (failed_session, replaced):
        assert refusal(await api.send("GET", session_path(session))) == (410, "SESSION_GONE")
        assert refusal(await _post(api, session)) == (410, "SESSION_GONE")
    assert (await _view(api, current))["token"]["symbol"] == "NATIVED"


async def test_a_session_is_shown_but_not_payable_in_its_last_minute(api: Api) -> None:
    _, session = await _bill(api)
    await api.world.move_clock(1800 - 62)
    assert (await _view(api, session))["payable"]
    await api.world.move_clock(1800 - 59)
    assert not (await _view(api, session))["payable"]
    await api.world.move_clock(1800 + 60)
    assert not (await _view(api, session))["payable"]


async def test_confirmations_are_needed_only_if_finality_counts_confirmations(api: Api) -> None:
    _, session = await _bill(api, "NATIVED")
    await api.world.perform(SetChain(chain="native", finality="confirmations", confirmations=9))
    with_confirmations = (await _view(api, session))["confirmations"]
    assert with_confirmations == {
        "mode": "confirmations",
        "seen": 0,
        "needed": 9,
        "eta_seconds": 30,
    }
    await api.world.perform(SetChain(chain="native", finality="finalized"))
    with_finality = (await _view(api, session))["confirmations"]
    assert with_finality == {"mode": "finalized", "seen": 0, "needed": None, "eta_seconds": 30}


async def test_a_session_is_unchanged_when_its_token_is_reconfigured(
    api: Api,
) -> None:
    _, session = await _bill(api)
    before = await _view(api, session)
    changes = {"address": f"0x{40 * '6'}", "decimals": 6, "approve_zero_first": True}
    await api.world.perform(SetToken(chain="native", symbol="USDT", **changes))
    after = await _view(api, session)
    for name in ("token", "steps", "checks", "amount_smallest_unit"):
        assert after[name] == before[name], name


async def test_a_session_stores_the_quoted_token_if_the_token_has_changed(api: Api) -> None:
    payment, session = await _bill(api)
    token = ExpectedToken(bytes.fromhex(USDT[2:]), 18, approve_zero_first=False)
    offer = replace(session.quote, expected_token=token)
    await api.world.perform(SetToken(chain="native", symbol="USDT", address=f"0x{40 * '6'}"))
    new_session = replace(
        session,
        id=api.world.id_generator.new_id(),
        status=SessionStatus.OPENING,
        quote=offer,
    )
    async with api.world.database.transaction() as tx:
        await tx.fetch("UPDATE session SET life = 'closing' WHERE payment_id = $1", payment.id)
        [result] = await session_store.add(tx, [new_session], 60.0, 20)
        assert result.is_stored
    row = await api.world.session(new_session.id)
    assert (row["token_address"], row["token_decimals"]) == (token.address, 18)


async def test_a_session_on_a_halted_chain_is_not_payable(api: Api) -> None:
    _, session = await _bill(api)
    await api.world.rows("UPDATE chain_cursor SET halted = 'a person must look'")
    assert not (await _view(api, session))["payable"]
    assert (await api.send("GET", "/v1/chains/native")).json["status"] == "halted"


async def test_an_invalid_hash_or_step_is_rejected(api: Api) -> None:
    _, session = await _bill(api)
    path = f"{session_path(session)}/transactions"
    for body in (
        *({}, [], "pay", {"step": "pay"}, {"tx_hash": _HASH}),
        *(_hash(None), _hash(17), _hash(64 * "a"), _hash(_HASH[:-1]), _hash(f"{_HASH}0")),
        *(_hash(f"0X{64 * 'a'}"), _hash(f"0x{64 * 'g'}"), _hash(f"0x{64 * '٣'}")),
        *(_hash(f"{_HASH}\n"), _hash("")),
        *(_step("refund"), _step("approve_reset"), _step("PAY"), _step(""), _step(None)),
    ):
        assert refusal(await api.send("POST", path, json=body)) == (400, "BAD_REQUEST"), body
    assert (await _view(api, session))["transactions"] == []


def _hash(tx_hash: Any) -> dict[str, Any]:
    return {"tx_hash": tx_hash, "step": "pay"}


def _step(step: Any) -> dict[str, Any]:
    return {"tx_hash": _HASH, "step": step}


async def test_a_session_accepts_ten_different_hashes_any_number_of_times(api: Api) -> None:
    _, session = await _bill(api)
    hashes = [f"0x{number:064X}".replace("0X", "0x") for number in range(0xA0, 0xAB)]
    for tx_hash in [*hashes[:10], hashes[0]]:
        response = await _post(api, session, tx_hash)
        assert (response.status, response.json) == (
            202,
            {"tx_hash": tx_hash.lower(), "step": "pay"},
        )
    assert refusal(await _post(api, session, hashes[10])) == (409, "CONFLICT")
    assert (await _post(api, session, hashes[3])).status == 202
    view = (await _view(api, session))["transactions"]
    assert view == [
        {"tx_hash": tx_hash.lower(), "step": "pay", "state": "unknown"} for tx_hash in hashes[:10]
    ]


async def test_a_posted_payment_changes_the_status_and_an_approval_does_not(api: Api) -> None:
    _, session = await _bill(api)
    await _post(api, session, _HASH, "approve")
    assert (await _view(api, session))["status"] == "awaiting_payment"
    await _post(api, session, f"0x{64 * 'b'}", "pay")
    view = await _view(api, session)
    assert (view["status"], view["payable"]) == ("submitted", True)
    steps = {(transaction["tx_hash"], transaction["step"]) for transaction in view["transactions"]}
    assert steps == {(_HASH, "approve"), (f"0x{64 * 'b'}", "pay")}


async def test_every_response_forbids_caching_and_allows_every_origin(api: Api) -> None:
    _, session = await _bill(api)
    path = session_path(session)
    responses = [
        await api.send("GET", path),
        await _post(api, session),
        await _post(api, session, "0x"),
        await api.send("GET", "/v1/onchain/sessions/sess_x"),
        await api.send("DELETE", path),
        await api.send("POST", f"{path}/transactions", data=b"x"),
        await api.send("POST", f"{path}/transactions", data=b"x" * 70_000),
        await api.send("GET", "/v1/chains/native"),
    ]
    assert [response.status for response in responses] == [200, 202, 400, 404, 405, 415, 413, 200]
    for response in responses:
        assert response.headers.getall("Cache-Control") == ["no-store"]
        assert response.headers.getall("Access-Control-Allow-Origin") == ["*"]
        assert "Retry-After" in response.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in response.headers


async def test_a_cors_preflight_succeeds(api: Api) -> None:
    headers = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    path = "/v1/onchain/sessions/sess_x/transactions"
    response = await api.send("OPTIONS", path, headers=headers)
    assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in response.headers["Access-Control-Allow-Headers"]


class TestBehindAProxy:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        """A rate of one request per second, with a burst of two."""
        limits = {"checkout_per_address_per_s": 1, "checkout_per_address_burst": 2}
        return settings.model_copy(update=limits | {"edge_trusted_proxies": "127.0.0.1"})

    async def test_requests_are_rate_limited_per_address_even_with_invalid_ids(
        self, api: Api
    ) -> None:
        _, session = await _bill(api)
        path = session_path(session)
        body = {"json": {"tx_hash": _HASH, "step": "pay"}}
        for address, method, requested_path, options in (
            ("192.0.2.7", "GET", path, {}),
            ("192.0.2.8", "POST", f"{path}/transactions", body),
            ("192.0.2.9", "GET", "/v1/onchain/sessions/sess_x", {}),
            ("192.0.2.10", "POST", "/v1/onchain/sessions/sess_x/transactions", {}),
            ("192.0.2.12", "GET", "/v1/chains/native", {}),
        ):
            headers = {"X-Forwarded-For": address}
            refused = await _send_until_limited(
                api, method, requested_path, headers=headers, **options
            )
            assert refusal(refused) == (429, "RATE_LIMITED")
            assert int(refused.headers["Retry-After"]) >= 1
        unlimited = await api.send("GET", path, headers={"X-Forwarded-For": "192.0.2.11"})
        assert unlimited.status == 200


async def _send_until_limited(api: Api, method: str, path: str, **options: Any) -> Answer:
    """Send requests until the limit applies; a slow machine is granted more requests."""
    for _ in range(100):
        response = await api.send(method, path, **options)
        if response.status == 429:
            return response
    raise AssertionError("no request was rejected")
