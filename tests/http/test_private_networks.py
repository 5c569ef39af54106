"""Webhooks can reach private networks and ports that the operator allows, but never metadata."""

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
from tests.http.test_egress import (
    METADATA_AND_LINK_LOCAL,
    PUBLIC,
    SPECIAL_PURPOSE,
    UNUSUAL_NOTATIONS,
)
from tests.support.fakes import FakeGateway
from tests.support.world import World

_WIDE = "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7"
#: Settings validation refuses these networks. The rules refuse them too.
_FORBIDDEN = "0.0.0.0/0,::/0,169.254.0.0/16,fe80::/10,64:ff9b::/96,2002::/16,::ffff:0:0/96"
_ADMIN = Actor("Ada", "it is arranged", Role.ADMIN)
_OTHER_ADMIN = Actor("Alan", "agreed", Role.ADMIN)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _settings(any_settings: Settings, networks: str = "", ports: str = "") -> Settings:
    return any_settings.model_copy(
        update={"sandbox": False, "webhook_networks": networks, "webhook_ports": ports}
    )


@pytest.mark.parametrize("networks", [_WIDE, _FORBIDDEN, f"{_WIDE},{_FORBIDDEN}"])
@pytest.mark.parametrize("address", METADATA_AND_LINK_LOCAL)
def test_metadata_and_link_local_addresses_are_refused_even_if_listed(
    any_settings: Settings, networks: str, address: str
) -> None:
    assert find_address_refusal(address, make_egress_rules(_settings(any_settings, networks)))


@pytest.mark.parametrize(
    "address",
    [
        *(
            item
            for item in SPECIAL_PURPOSE
            if not item.startswith("100.") or item == "100.100.100.200"
        ),
        "fd00:ec2::23",  # EKS Pod Identity
        "fd00:ec2::253",  # DNS
        "fd00:42::42",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ],
)
def test_special_purpose_addresses_are_refused_even_if_listed(
    any_settings: Settings, address: str
) -> None:
    rules = make_egress_rules(_settings(any_settings, f"{_WIDE},{_FORBIDDEN}"))
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
def test_a_private_address_is_allowed_only_if_its_network_is_listed(
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
def test_public_addresses_need_not_be_listed(any_settings: Settings, address: str) -> None:
    assert (
        find_address_refusal(address, make_egress_rules(_settings(any_settings, "10.0.0.0/8")))
        is None
    )


@pytest.mark.parametrize("host", UNUSUAL_NOTATIONS)
def test_an_unusual_notation_of_a_listed_address_is_refused(
    any_settings: Settings, host: str
) -> None:
    with pytest.raises(EgressRefusedError):
        check_callback_url(
            f"https://{host}/hook", make_egress_rules(_settings(any_settings, _WIDE))
        )


def test_listed_ports_are_allowed_in_addition_to_the_default_ports(any_settings: Settings) -> None:
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
def test_an_invalid_list_of_networks_or_ports_is_refused(
    changes: dict[str, Any], problem: str
) -> None:
    required = {"database_url": "postgresql://x", "pepper": "x", "keyring": "x"}
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate(required | changes)


async def test_a_callback_url_can_be_registered_only_in_a_listed_network(
    world: World, settings: Settings
) -> None:
    await world.operator_token(_ADMIN.name)
    changed_settings = _settings(settings, "10.1.0.0/16", "3000")
    service = await open_service(changed_settings, {"fake": FakeGateway()})
    try:
        for url in ("https://10.1.2.3:3000/hook", "https://10.1.2.3/hook"):
            change = SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url)
            proposal = await service.submit(change, _ADMIN)  # the merchant is active
            assert isinstance(proposal, Proposal)
            await service.run_operation(
                Approve(approval_id=format_id(APPROVAL, proposal.id)), _OTHER_ADMIN
            )
            merchant = await world.perform(ShowMerchant(merchant_id=world.merchant_id))
            assert merchant.callback_url == url
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


async def test_a_webhook_is_sent_only_to_a_listed_network_and_port(
    any_settings: Settings, endpoint: Any
) -> None:
    async with endpoint(_OK) as merchant:
        attempt = await _send(
            _settings(any_settings, "127.0.0.1", str(merchant.port)), merchant.url
        )
        assert (attempt.succeeded, len(merchant.requests)) == (True, 1)
        other_network = await _send(
            _settings(any_settings, "10.0.0.0/8", str(merchant.port)), merchant.url
        )
        other_port = await _send(_settings(any_settings, "127.0.0.1"), merchant.url)
        assert len(merchant.requests) == 1
    assert other_network.outcome is other_port.outcome is AttemptOutcome.BLOCKED


@pytest.mark.parametrize("host", ["127.0.0.1", "moves.example"])
async def test_a_url_of_a_member_cannot_reach_a_listed_network(
    any_settings: Settings, trap: Any, host: str
) -> None:
    """The operator has allowed the network only for the operator's own URLs."""

    async def lookup(_host: str) -> list[str]:
        return ["127.0.0.1"]

    settings = _settings(any_settings, "127.0.0.1", str(trap.port))
    url = f"http://{host}:{trap.port}/hook"
    attempt = await _send(settings, url, lookup, is_public_only=True)
    assert attempt.outcome is AttemptOutcome.BLOCKED
    assert trap.is_untouched()


@pytest.mark.parametrize(
    "new_address", ["127.0.0.2", "169.254.169.254", "fd00:ec2::254", "::ffff:127.0.0.1", "10.0.0.1"]
)
async def test_no_connection_is_made_to_a_name_that_leaves_its_listed_network(
    any_settings: Settings, trap: Any, new_address: str
) -> None:
    answers = {"now": ["127.0.0.1"]}

    async def lookup(_host: str) -> list[str]:
        return answers["now"]

    settings = _settings(any_settings, "127.0.0.1", str(trap.port))
    url = f"http://moves.example:{trap.port}/hook"
    await check_callback_registration(url, make_egress_rules(settings), lookup=lookup)
    for answer in ([new_address], ["127.0.0.1", new_address]):
        answers["now"] = answer
        attempt = await _send(settings, url, lookup)
        assert not attempt.succeeded
        assert attempt.outcome is AttemptOutcome.BLOCKED
    assert trap.is_untouched()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_an_image_is_never_fetched_from_a_network_listed_for_webhooks(
    settings: Settings, gateway: FakeGateway, trap: Any, host: str
) -> None:
    """Merchants enter image URLs. The operator has allowed the network only for webhooks."""
    allowed = _settings(settings, "127.0.0.0/8,::1", str(trap.port))
    service = await open_service(allowed, {"fake": gateway})
    try:
        assert make_egress_rules(service.settings).networks, "webhooks can reach the network"
        picture = PictureSource(f"https://{host}:{trap.port}/book.png")
        assert await service.pictures.get(picture) is None
    finally:
        await service.close()
    assert trap.is_untouched()


async def _send(
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
