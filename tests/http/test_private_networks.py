"""Webhooks to private networks and ports that the operator allows, but never to metadata."""

from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from payintent.approvals.operations import Approve
from payintent.checkout.pictures.cache import PictureSource
from payintent.core.access import Role
from payintent.core.errors import RefusedError
from payintent.core.ids import APPROVAL, format_id
from payintent.http.egress import (
    PORTS,
    EgressRefusedError,
    check_callback_registration,
    check_callback_url,
    find_address_refusal,
    make_egress_rules,
)
from payintent.merchants.callback_secrets import generate_secret
from payintent.merchants.operations import SetCallbackUrl, ShowMerchant
from payintent.operators.operation import Actor
from payintent.operators.proposals_store import Proposal
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent.webhooks.model import OutgoingDelivery
from payintent.webhooks.sender import AttemptOutcome, WebhookSender
from tests.http.test_egress import METADATA_AND_LINK_LOCAL, NEVER, ODD_SPELLINGS, PUBLIC
from tests.support.fakes import FakeGateway
from tests.support.world import World

_WIDE = "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7"
#: What no setting may hold; the rules hold against it all the same.
_ABSURD = "0.0.0.0/0,::/0,169.254.0.0/16,fe80::/10,64:ff9b::/96,2002::/16,::ffff:0:0/96"
_ADMIN = Actor("Ada", "it is arranged", Role.ADMIN)
_OTHER_ADMIN = Actor("Alan", "agreed", Role.ADMIN)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _settings(any_settings: Settings, networks: str = "", ports: str = "") -> Settings:
    return any_settings.model_copy(
        update={"sandbox": False, "webhook_networks": networks, "webhook_ports": ports}
    )


@pytest.mark.parametrize("networks", [_WIDE, _ABSURD, f"{_WIDE},{_ABSURD}"])
@pytest.mark.parametrize("address", METADATA_AND_LINK_LOCAL)
def test_metadata_and_link_local_addresses_are_refused_whatever_is_listed(
    any_settings: Settings, networks: str, address: str
) -> None:
    assert find_address_refusal(address, make_egress_rules(_settings(any_settings, networks)))


@pytest.mark.parametrize(
    "address",
    [
        *(item for item in NEVER if not item.startswith("100.") or item == "100.100.100.200"),
        "fd00:ec2::23",  # of pods
        "fd00:ec2::253",  # names
        "fd00:42::42",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ],
)
def test_what_is_neither_public_nor_private_stays_refused(
    any_settings: Settings, address: str
) -> None:
    rules = make_egress_rules(_settings(any_settings, f"{_WIDE},{_ABSURD}"))
    assert find_address_refusal(address, rules)


@pytest.mark.parametrize(
    ("networks", "address", "is_allowed"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        (" 10.1.0.0/16 , 192.168.7.9,", "192.168.7.9", True),
        ("192.168.7.9", "192.168.7.10", False),
        ("10.1.0.0/16", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "::1", True),
        ("100.64.0.0/10", "100.64.0.1", True),
        ("fd12:3456::/32", "fd12:3456:789a::1", True),
        ("fd12:3456::/32", "fd13::1", False),
        ("::ffff:10.1.0.0/112", "10.1.2.3", True),
        ("", "10.1.2.3", False),
    ],
)
def test_a_private_address_may_be_called_where_its_network_is_listed(
    any_settings: Settings, networks: str, address: str, is_allowed: bool
) -> None:
    rules = make_egress_rules(_settings(any_settings, networks))
    assert (find_address_refusal(address, rules) is None) is is_allowed
    host = f"[{address}]" if ":" in address else address
    if is_allowed:
        assert check_callback_url(f"https://{host}/hook", rules).url == f"https://{host}/hook"
    else:
        with pytest.raises(EgressRefusedError, match="the address is not allowed"):
            check_callback_url(f"https://{host}/hook", rules)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_need_no_listing(any_settings: Settings, address: str) -> None:
    assert (
        find_address_refusal(address, make_egress_rules(_settings(any_settings, "10.0.0.0/8")))
        is None
    )


@pytest.mark.parametrize("host", ODD_SPELLINGS)
def test_an_odd_spelling_of_a_listed_address_is_refused(any_settings: Settings, host: str) -> None:
    with pytest.raises(EgressRefusedError):
        check_callback_url(
            f"https://{host}/hook", make_egress_rules(_settings(any_settings, _WIDE))
        )


def test_ports_that_are_listed_are_open_beside_the_usual_ones(any_settings: Settings) -> None:
    rules = make_egress_rules(_settings(any_settings, "", "3000, 9443"))
    assert rules.ports == PORTS | {3000, 9443}
    assert check_callback_url("https://shop.example.com:3000/", rules).port == 3000
    for port in (22, 3001, 65535, 0):
        with pytest.raises(EgressRefusedError, match="port must be one of 80, 443, 3000"):
            check_callback_url(f"https://shop.example.com:{port}/", rules)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"webhook_networks": "0.0.0.0/0"}, "'0.0.0.0/0', which is not a private network"),
        ({"webhook_networks": "::/0"}, "'::/0', which is not a private network"),
        ({"webhook_networks": "10.0.0.0/7"}, "'10.0.0.0/7', which is not a private network"),
        ({"webhook_networks": "10.0.0.0/8,169.254.169.254"}, "'169.254.169.254', which is no"),
        ({"webhook_networks": "fe80::/64"}, "'fe80::/64', which is not a private network"),
        ({"webhook_networks": "8.8.8.0/24"}, "public networks are always allowed"),
        ({"webhook_networks": "64:ff9b::/96"}, "'64:ff9b::/96', which is not a private network"),
        ({"webhook_networks": "10.0.0.1/8"}, "which is not an address or a network"),
        ({"webhook_networks": "shop.internal"}, "which is not an address or a network"),
        ({"webhook_ports": "0"}, "'0', which is not a port"),
        ({"webhook_ports": "65536"}, "'65536', which is not a port"),
        ({"webhook_ports": "3000-3010"}, "'3000-3010', which is not a port"),
        ({"webhook_ports": "9" * 5000}, "which is not a port"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(changes: dict[str, Any], problem: str) -> None:
    needed = {"database_url": "postgresql://x", "pepper": "x", "keyring": "x"}
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate(needed | changes)


async def test_a_merchant_is_registered_in_a_listed_network_alone(
    world: World, settings: Settings
) -> None:
    await world.operator_token(_ADMIN.name)
    listed = _settings(settings, "10.1.0.0/16", "3000")
    service = await open_service(listed, {"fake": FakeGateway()})
    try:
        for url in ("https://10.1.2.3:3000/hook", "https://10.1.2.3/hook"):
            change = SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url)
            proposal = await service.submit(change, _ADMIN)  # its merchant is in service
            assert isinstance(proposal, Proposal)
            await service.run_operation(
                Approve(approval_id=format_id(APPROVAL, proposal.id)), _OTHER_ADMIN
            )
            shown = await world.perform(ShowMerchant(merchant_id=world.merchant_id))
            assert shown.callback_url == url
        for url in (
            "https://10.2.0.1/hook",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00:ec2::254]/latest/meta-data",
            "https://10.1.2.3:3001/hook",
            "http://10.1.2.3/hook",
        ):
            change = SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url)
            with pytest.raises(RefusedError, match="callback_url"):
                await service.submit(change, _ADMIN)
    finally:
        await service.close()


async def test_a_webhook_arrives_in_a_listed_network_at_a_listed_port(
    any_settings: Settings, endpoint: Any
) -> None:
    async with endpoint(_OK) as merchant:
        attempt = await _sent(
            _settings(any_settings, "127.0.0.1", str(merchant.port)), merchant.url
        )
        assert (attempt.succeeded, len(merchant.requests)) == (True, 1)
        elsewhere = await _sent(
            _settings(any_settings, "10.0.0.0/8", str(merchant.port)), merchant.url
        )
        other_port = await _sent(_settings(any_settings, "127.0.0.1"), merchant.url)
        assert len(merchant.requests) == 1
    assert elsewhere.outcome is other_port.outcome is AttemptOutcome.BLOCKED


@pytest.mark.parametrize("host", ["127.0.0.1", "moves.example"])
async def test_a_url_of_a_member_leads_into_no_listed_network(
    any_settings: Settings, trap: Any, host: str
) -> None:
    """The operator has allowed the network for the operator's own URLs."""

    async def lookup(_host: str) -> list[str]:
        return ["127.0.0.1"]

    settings = _settings(any_settings, "127.0.0.1", str(trap.port))
    url = f"http://{host}:{trap.port}/hook"
    attempt = await _sent(settings, url, lookup, is_public_only=True)
    assert attempt.outcome is AttemptOutcome.BLOCKED
    assert trap.is_untouched()


@pytest.mark.parametrize(
    "moved", ["127.0.0.2", "169.254.169.254", "fd00:ec2::254", "::ffff:127.0.0.1", "10.0.0.1"]
)
async def test_a_name_that_leaves_its_listed_network_is_never_connected_to(
    any_settings: Settings, trap: Any, moved: str
) -> None:
    answers = {"now": ["127.0.0.1"]}

    async def lookup(_host: str) -> list[str]:
        return answers["now"]

    settings = _settings(any_settings, "127.0.0.1", str(trap.port))
    url = f"http://moves.example:{trap.port}/hook"
    await check_callback_registration(url, make_egress_rules(settings), lookup=lookup)
    for answer in ([moved], ["127.0.0.1", moved]):
        answers["now"] = answer
        attempt = await _sent(settings, url, lookup)
        assert not attempt.succeeded
        assert attempt.outcome is AttemptOutcome.BLOCKED
    assert trap.is_untouched()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_picture_is_never_fetched_from_a_network_that_webhooks_may_reach(
    settings: Settings, gateway: FakeGateway, trap: Any, host: str
) -> None:
    """A merchant enters an image URL; the operator has allowed the network for webhooks."""
    allowed = _settings(settings, "127.0.0.0/8,::1", str(trap.port))
    service = await open_service(allowed, {"fake": gateway})
    try:
        assert make_egress_rules(service.settings).networks, "webhooks may go there"
        picture = PictureSource(f"https://{host}:{trap.port}/book.png")
        assert await service.pictures.get(picture) is None
    finally:
        await service.close()
    assert trap.is_untouched()


async def _sent(
    settings: Settings, url: str, lookup: Any = None, *, is_public_only: bool = False
) -> Any:
    sender = WebhookSender(settings, lambda: 1_700_000_000.0, lookup=lookup)
    delivery = OutgoingDelivery(
        event_id=uuid4(),
        payment_id=uuid4(),
        merchant_id=1,
        attempts=0,
        url=url,
        is_public_only=is_public_only,
        body=b"{}",
        secrets=(generate_secret(),),
    )
    try:
        return await sender.send(delivery)
    finally:
        await sender.close()
