"""An installed gateway package: `doctor` output, accounts and import errors."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.example_package import (
    MODULE,
    entry_points_in,
    install_example,
    lay_out_example,
)
from tests.support.installed_methods import NOBODY_URL

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(install_example(tmp_path_factory.mktemp("example")))


def test_the_conformance_kit_tests_the_files_that_the_wheel_installs(
    installed: str, tmp_path: Path
) -> None:
    laid_out, unpacked = lay_out_example(tmp_path), Path(installed)
    for name in (f"{MODULE}.py", "*.dist-info/entry_points.txt"):
        [ours], [wheels] = laid_out.glob(name), unpacked.glob(name)
        assert ours.name == wheels.name
        assert ours.read_text().strip() == wheels.read_text().strip()
    [ours], [wheels] = entry_points_in(laid_out), entry_points_in(unpacked)
    assert (ours.name, ours.value) == (wheels.name, wheels.value)


def test_accounts_of_an_installed_gateway_can_be_added_and_checked(
    run: Run, installed: str, tmp_path: Path
) -> None:
    doctor = run("doctor", PYTHONPATH=installed)
    assert "8 built in, example from payintent-examplepay 1.0.0" in doctor.out, doctor
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"api_key": "k-9876", "signing_secret": "s-9876"}))
    add = ("account", "add", "--provider", "example", "--base-url", NOBODY_URL)
    added = run(*add, "--credentials", credentials, "--json", PYTHONPATH=installed).json
    assert added["callback_url"].endswith(f"/callbacks/example/{added['id']}")
    checked = run("account", "check", added["id"], "--json", PYTHONPATH=installed)
    assert checked.status == 1
    assert json.loads(checked.out) | {"detail": ""} == {
        "account_id": added["id"],
        "provider": "example",
        "works": False,
        "problem": "address",
        "detail": "",
    }
    assert "9876" not in checked.out + checked.err
    unavailable = run("account", "check", added["id"])
    assert (unavailable.status, "no adapter for example is installed" in unavailable.out) == (
        1,
        True,
    )


@pytest.mark.parametrize("command", ["api", "worker", "account list"])
def test_commands_fail_if_a_gateway_cannot_be_imported(
    run: Run, tmp_path: Path, command: str
) -> None:
    _add_broken_gateway(tmp_path)
    result = run(*command.split(), PYTHONPATH=str(tmp_path))
    assert result.status == 1, result
    # The API and worker also log their start, even after a process has reported the error.
    log_lines = {line for line in result.err.splitlines() if line.startswith("{")}
    [error] = set(result.err.splitlines()) - log_lines
    assert error == (
        "payintent: the gateway acme (acme_nowhere:Acme in acme-pay 2.1) cannot be used: "
        "ModuleNotFoundError: No module named 'acme_nowhere'"
    )


def test_doctor_reports_a_gateway_that_cannot_be_imported(run: Run, tmp_path: Path) -> None:
    _add_broken_gateway(tmp_path)
    result = run("doctor", PYTHONPATH=str(tmp_path))
    assert result.status == 1
    assert "gateways   FAIL  the gateway acme (acme_nowhere:Acme in acme-pay 2.1)" in result.out


def _add_broken_gateway(site: Path) -> None:
    info = site / "acme_pay-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-pay\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text("[payintent.gateways]\nacme = acme_nowhere:Acme\n")
