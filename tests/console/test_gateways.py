"""Gateways in the console: enabling and disabling, errors, outages and roles."""

from dataclasses import replace

import pytest

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import BadRequestError
from payintent.gateway_accounts import health as gateway_outages
from payintent.gateway_accounts.calls import GatewayCall, GatewayRequestKind
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateway_accounts.providers_operations import ListProviders
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import OutcomeUnknown
from payintent.gateways.simulator import SimulatorGateway
from payintent.operators.operation import OperationContext
from payintent.service import Service
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.world import Api, World

WHY = "it takes money twice"


async def _submit_change(visitor: Visitor, path: str, **fields: str) -> None:
    """Submit the form of an operation, and confirm it if necessary."""
    answer = await visitor.post(path, why=WHY, **fields)
    assert answer.status == 200, words(answer)
    if b'value="confirmed"' in answer.body:
        answer = await visitor.post(path, why=WHY, step="confirmed", **fields)
        assert answer.status == 200, words(answer)


async def test_outside_the_sandbox_a_sandbox_gateway_is_listed_only_if_it_has_accounts(
    production: Service, world: World
) -> None:
    http = GatewayHttpClient(timeout_s=5, response_bytes_max=1_024)
    gateways = {"fake": world.gateway, "simulator": SimulatorGateway(http)}
    context = replace(world.service.operation_context, gateways=gateways)
    outside_context = replace(production.operation_context, gateways=context.gateways)
    assert "simulator" in await _list_providers(context)
    assert await _list_providers(context) - await _list_providers(outside_context) == {"simulator"}
    operation = AddAccount(provider="none", base_url="https://a.example", credentials={"key": "x"})
    for operation_context, message in (
        (context, "one of fake, simulator$"),
        (outside_context, "one of fake$"),
    ):
        with pytest.raises(BadRequestError, match=message):
            await operation.check(operation_context)
    await world.rows("UPDATE provider_account SET provider = 'simulator'")
    assert "simulator" in await _list_providers(outside_context)


async def _list_providers(context: OperationContext) -> set[str]:
    return {provider.name for provider in await ListProviders().read(context)}


@pytest.mark.parametrize("subject", ["provider", "account"])
async def test_a_provider_or_an_account_can_be_disabled_and_enabled(
    operator: Api, world: World, subject: str
) -> None:
    visitor = await sign_in_as(operator)
    field, value = {
        "provider": ("provider", "fake"),
        "account": ("account_id", str(world.account_id)),
    }[subject]
    off, on = f"/operations/{subject}/disable", f"/operations/{subject}/enable"
    assert f'href="{off}?{field}={value}"' in (await visitor.get("/gateways")).body.decode()
    await _submit_change(visitor, off, **{field: value})
    page = (await visitor.get("/gateways")).body.decode()
    assert f'href="{on}?{field}={value}"' in page
    assert f'href="{off}?{field}={value}"' not in page
    await _submit_change(visitor, on, **{field: value})
    assert f'href="{off}?{field}={value}"' in (await visitor.get("/gateways")).body.decode()
    entries = await world.rows("SELECT action, who, why FROM audit WHERE action LIKE $1", "%able")
    assert [tuple(row.values()) for row in entries] == [
        (f"{subject}.disable", "ann", WHY),
        (f"{subject}.enable", "ann", WHY),
    ]


async def test_a_viewer_sees_gateways_but_cannot_change_them(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    answer = await visitor.get("/gateways")
    assert "http://gateway.test" in words(answer)
    assert b"disabled" not in answer.body
    assert b"account/check" not in answer.body
    for subject, fields in (
        ("provider", {"provider": "fake"}),
        ("account", {"account_id": str(world.account_id)}),
    ):
        path = f"/operations/{subject}/disable"
        answer = await visitor.post(path, why=WHY, step="confirmed", **fields)
        assert answer.status == 403
    assert not await world.rows("SELECT FROM provider WHERE NOT enabled")
    assert not await world.rows("SELECT FROM provider_account WHERE NOT enabled")


async def test_support_can_check_an_account_but_not_change_it(operator: Api) -> None:
    visitor = await sign_in_as(operator, role=Role.SUPPORT)
    answer = await visitor.get("/gateways")
    assert b"/operations/account/check?account_id=" in answer.body
    assert b"account/disable" not in answer.body


async def test_recent_errors_link_to_their_payment(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert "Recent errors" not in words(await visitor.get("/gateways"))
    payment, log = await world.create(), world.service.accounts.log
    call = GatewayCall(
        account_id=world.account_id,
        provider="fake",
        kind=GatewayRequestKind.CLOSE_SESSION,
        subject_id=payment.id,
        payment_id=payment.id,
    )
    log.add(call, OutcomeUnknown(detail="no answer <in> 15 s"), log.now_s())
    await log.flush()
    answer = await visitor.get("/gateways")
    assert "close_session unknown no answer <in> 15 s 0 ms" in words(answer)
    path = f"/payments/{ids.format_id(ids.PAYMENT, payment.id)}"
    assert f'<a href="{path}">{path.rpartition("/")[2]}</a>'.encode() in answer.body
    timeline = words(await visitor.get(path))
    assert "no answer <in> 15 s" in timeline


async def test_an_outage_shows_its_start_and_its_cause(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert "All gateways are responding." in words(await visitor.get("/gateways"))
    database, account_id = world.database, world.account_id
    await gateway_outages.open_circuit(database, account_id, "refunds", "no answer <in> 15 s")
    page = words(await visitor.get("/gateways"))
    assert "1 gateway channel is unresponsive" in page
    assert "circuit open since" in page
    assert "opened 1 time in a row" in page
    assert "no answer <in> 15 s" in page
    await world.move_clock(60)
    assert "retry pending since" in words(await visitor.get("/gateways"))
    assert "fake refunds 1 min" in words(await visitor.get("/"))
