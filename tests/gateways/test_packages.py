"""Gateways of installed packages are found by entry points, or refused by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import GatewayPackageError, load_gateway_packages
from payintent.service import BUILT_IN_PROVIDERS
from tests.support.example_package import entry_points_in

HTTP = GatewayHttpClient(timeout_s=1.0, response_bytes_max=1)

ADAPTERS = """
from payintent.gateways.simulator import SimulatorGateway

class Acme(SimulatorGateway):
    provider = "acme"

class Misnamed(SimulatorGateway):
    provider = "other"

class Halved(SimulatorGateway):
    provider = "acme"
    refund = None
    inquire = None

class Shouting(SimulatorGateway):
    provider = "Acme Pay"

class Vague(SimulatorGateway):
    provider = "acme"
    capabilities = {}

def failing(http):
    raise RuntimeError("no licence")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, with a module of gateway adapters."""
    (tmp_path / "acme_gateways.py").write_text(ADAPTERS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("acme_gateways", None)


def _install(site: Path, package: str, name: str, value: str) -> None:
    info = site / f"{package.replace('-', '_')}-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text(f"[payintent.gateways]\n{name} = {value}\n")


def _load_error(site: Path) -> str:
    with pytest.raises(GatewayPackageError) as error:
        load_gateway_packages(HTTP, BUILT_IN_PROVIDERS, entry_points_in(site))
    return str(error.value)


def test_a_package_adds_a_gateway(site: Path) -> None:
    _install(site, "acme-pay", "acme", "acme_gateways:Acme")
    [(name, gateway)] = load_gateway_packages(
        HTTP, BUILT_IN_PROVIDERS, entry_points_in(site)
    ).items()
    assert (name, gateway.provider) == ("acme", "acme")


def test_a_package_cannot_replace_a_built_in_gateway(site: Path) -> None:
    _install(site, "acme-pay", "stripe", "acme_gateways:Acme")
    assert _load_error(site) == (
        "two packages provide the gateway stripe: payintent itself and acme-pay 2.1; "
        "uninstall one of them"
    )


def test_the_error_names_both_packages_that_provide_the_same_gateway(site: Path) -> None:
    _install(site, "acme-pay", "acme", "acme_gateways:Acme")
    _install(site, "zeta-pay", "acme", "acme_gateways:Acme")
    assert "acme: acme-pay 2.1 and zeta-pay 2.1" in _load_error(site)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("acme_nowhere:Acme", "ModuleNotFoundError: No module named 'acme_nowhere'"),
        ("acme_gateways:Nothing", "AttributeError: module 'acme_gateways' has no attribute"),
        ("acme_gateways:failing", "RuntimeError: no licence"),
        ("acme_gateways:Misnamed", "its provider is 'other'"),
        ("acme_gateways:Halved", "it lacks inquire, refund"),
        ("acme_gateways:Vague", "its capabilities are not a GatewayCapabilities object"),
    ],
)
def test_the_error_names_the_unusable_gateway_and_the_reason(
    site: Path, value: str, reason: str
) -> None:
    _install(site, "acme-pay", "acme", value)
    message = _load_error(site)
    assert message.startswith(
        f"the gateway acme ({value} in acme-pay 2.1) cannot be used: {reason}"
    )


def test_a_gateway_with_an_invalid_name_is_refused(site: Path) -> None:
    _install(site, "acme-pay", "Acme Pay", "acme_gateways:Shouting")
    assert _load_error(site).endswith(
        "cannot be used: its name must be 1 to 32 lowercase letters, digits, _ and -"
    )
