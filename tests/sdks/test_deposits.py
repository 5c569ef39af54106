"""Both SDKs, the page's script, viem and the contract derive the same deposit addresses."""

import asyncio
import json
import random
import re
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import payintent
from payintent.core.ids import PAYMENT, SESSION, format_id
from payintent.evm.abi import to_checksum_address
from payintent.evm.deposits import init_code_hash
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent_sandbox.chains.anvil_binary import npm
from payintent_sandbox.chains.contracts import DEPOSIT_FACTORY, DEPOSIT_FORWARDER, load
from payintent_sandbox.chains.deploy import create_contract
from tests.sdks import python_sdk, typescript_sdk
from tests.sdks.python_sdk import HERE
from tests.sdks.test_cli import run_command
from tests.support.chain_fixtures import anvil, chain_url
from tests.support.contracts import contract_service
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.fakes import FakeGateway
from tests.support.onchain import ChainWorld, chain_world, session_path
from tests.support.tampered_sessions import ATTACKER, tamper
from tests.support.world import Api, World
from tools.web.install import FOLDER

pytestmark = pytest.mark.full

__all__ = ["anvil", "chain_url"]

_PAGE = Path(payintent.__file__).parent / "checkout/static/derive.js"
_VIEM = FOLDER / "node_modules/viem/_esm/index.js"
_WRONG = "WrongDepositAddressError"


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def ground(world: World, chain_url: str) -> AsyncIterator[ChainWorld]:
    async with chain_world(world, chain_url) as ground:
        yield ground


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


def use(
    language: str, derivations: list[list[str]], sessions: list[Any]
) -> tuple[list[str], list[str]]:
    """Derive addresses and verify sessions with an SDK."""
    text = json.dumps([derivations, sessions])
    if language == "python":
        return json.loads(python_sdk.run_program("use_deposits.py", text=text))
    return json.loads(typescript_sdk.run_program("use_deposits.mts", text=text))


async def test_the_page_both_sdks_viem_and_the_contract_derive_the_same_addresses(
    ground: ChainWorld, tmp_path: Path
) -> None:
    generator = random.Random(7)
    factory_code = load(DEPOSIT_FACTORY)
    cases: list[list[str]] = []
    contract_addresses: list[str] = []
    for receiver in (await ground.chain.ask("eth_accounts"))[:3]:
        forwarder, _ = await create_contract(
            ground.chain, ground.payer, DEPOSIT_FORWARDER, receiver
        )
        factory, _ = await create_contract(ground.chain, ground.payer, DEPOSIT_FACTORY, forwarder)
        for _ in range(70):
            uuid = generator.randbytes(16)
            call = {"to": factory, "data": factory_code.call_data("address_of", uuid)}
            result = await ground.chain.ask("eth_call", call, "latest")
            cases.append([f"0x{uuid.hex()}", factory, forwarder])
            contract_addresses.append(f"0x{result[-40:]}")
    page = str(shutil.copy(_PAGE, tmp_path / "page.mjs"))
    command = (npm()[0], str(HERE / "use_viem.mjs"), str(_VIEM), page)
    derived = json.loads(typescript_sdk.run(*command, folder=tmp_path, text=json.dumps(cases)))
    for addresses in ("create", "create2", "page"):
        assert [item[addresses].lower() for item in derived] == contract_addresses
    hashes = [f"0x{init_code_hash(bytes.fromhex(case[2][2:])).hex()}" for case in cases]
    assert [item["code_hash"] for item in derived] == hashes
    derivations = [[*case[:2], code_hash] for case, code_hash in zip(cases, hashes, strict=True)]
    for language in ("python", "typescript"):
        assert use(language, derivations, [])[0] == contract_addresses


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_malformed_values_are_refused(language: str) -> None:
    uuid, factory, code_hash = "0x" + "1" * 32, ATTACKER, "0x" + "2" * 64
    derivations = [[uuid[:-1], factory, code_hash], [uuid, "0x", code_hash], [uuid, factory, "x"]]
    error = "ValueError" if language == "python" else "TypeError"
    assert use(language, derivations, [])[0] == [error] * len(derivations)


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_a_session_is_refused_if_its_address_does_not_derive_from_a_stored_chain(
    api: Api, deposits: DepositGround, language: str
) -> None:
    _, session = await deposits.bill()
    view = (await api.send("GET", session_path(session))).json
    chain = (await api.send("GET", f"/v1/chains/{deposits.ground.slug}")).json
    address = view["deposit_address"]
    wrong_chain = chain | {"deposits": chain["deposits"] | {"factory_address": ATTACKER}}
    _, paid_to_contract = await deposits.ground.bill("USDT")
    contract_session = (await api.send("GET", session_path(paid_to_contract))).json
    error = "ValueError" if language == "python" else "TypeError"
    cases: list[tuple[Any, list[Any], str]] = [
        (view, [chain], address),
        (view | {"deposit_address": address.lower()}, [chain], address.lower()),
        (view, [wrong_chain, chain], address),
        (view, [], _WRONG),
        (view, [wrong_chain], _WRONG),
        (view, [chain | {"deposits": None}], _WRONG),
        (view, [chain | {"network_id": 1}], _WRONG),
        (contract_session, [chain], error),
        (view | {"pay_uuid": "0x1"}, [chain], error),
    ]
    cases += [(tampered, [chain], _WRONG) for tampered in tamper(view).values()]
    _, results = use(language, [], [case[:2] for case in cases])
    assert results == [expected for *_, expected in cases]


_CALLS = {
    "python": """{}

import sys
with Client(*sys.argv[1:3]) as client:
    print(deposit(client, *sys.argv[3:]))
""",
    "typescript": """{}
import {{ Client as Made }} from "payintent-sdk";
import {{ readFileSync }} from "node:fs";
const [apiKey, baseUrl, id, file] = process.argv.slice(2);
const stored = JSON.parse(readFileSync(file, "utf8"));
console.log(await deposit(new Made({{ apiKey, baseUrl }}), id, stored));
""",
}


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_the_readmes_example_runs_as_printed(
    api: Api, deposits: DepositGround, language: str, tmp_path: Path
) -> None:
    _, session = await deposits.bill()
    chain = tmp_path / "chain.json"
    chain.write_bytes((await api.send("GET", f"/v1/chains/{deposits.ground.slug}")).body)
    readme = (python_sdk.ROOT / f"sdks/{language}/README.md").read_text()
    [example] = re.findall(rf"```{language}\n([^`]*[vV]erify_?[dD]eposit.*?)```", readme, re.DOTALL)
    program = _CALLS[language].format(example)
    arguments = (api.world.api_key, api.base, format_id(SESSION, session.id), str(chain))
    if language == "python":
        (tmp_path / "example.py").write_text(program)
        run = partial(python_sdk.run_program, str(tmp_path / "example.py"), *arguments)
    else:
        (typescript_sdk.install_sdk() / "example.mts").write_text(program)
        run = partial(typescript_sdk.run_program, "example.mts", *arguments)
    address = to_checksum_address(bytes.fromhex(deposits.address(session)[2:]))
    assert (await asyncio.to_thread(run)).endswith(f"to {address}\n")


async def test_the_command_verifies_a_payments_address_and_fails_if_it_is_wrong(
    api: Api, deposits: DepositGround, tmp_path: Path
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session, TOTAL // 2)
    await deposits.ground.turn()
    chain = (await api.send("GET", f"/v1/chains/{deposits.ground.slug}")).json
    address = to_checksum_address(bytes.fromhex(deposits.address(session)[2:]))
    stored_file, wrong_file = tmp_path / "stored.json", tmp_path / "other.json"
    stored_file.write_text(json.dumps(chain))
    wrong_deposits = chain["deposits"] | {"init_code_hash": "0x" + "1" * 64}
    wrong_file.write_text(json.dumps(chain | {"deposits": wrong_deposits}))
    payment_id, session_id = format_id(PAYMENT, payment.id), format_id(SESSION, session.id)

    async def verify(id_: str, *arguments: str) -> tuple[int, str, str]:
        variables = {"PAYINTENT_API_KEY": api.world.api_key, "PAYINTENT_URL": api.base}
        return await run_command(tmp_path, "verify-deposit", id_, "--live", *arguments, **variables)

    for id_ in (payment_id, session_id):
        status, out, error = await verify(
            id_, "--chain", str(stored_file), "--address", address.lower()
        )
        assert (status, error) == (0, "")
        assert f"verified: {address} is the deposit address of {session_id}" in out
        assert "received 0 USDT, pending 12.75 USDT, remaining 12.75 USDT" in out
    for arguments in (
        ["--chain", str(wrong_file)],
        ["--chain", str(stored_file), "--address", ATTACKER],
    ):
        status, out, error = await verify(payment_id, *arguments)
        assert (status, out) == (1, "")
        assert "Do not send money there" in error
    wrong_file.write_text("{}")
    _, contract_session = await deposits.ground.bill("USDT")
    for id_, arguments in (
        (payment_id, []),
        (payment_id, ["--chain", str(wrong_file)]),
        (payment_id, ["--chain", str(tmp_path / "none.json")]),
        (format_id(SESSION, contract_session.id), ["--chain", str(stored_file)]),
    ):
        assert (await verify(id_, *arguments))[0] == 2
