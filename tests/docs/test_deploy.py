"""The deployment pages, and the files for units, the image and the compose example."""

import asyncio
import configparser
import re
import shlex
import tomllib
from fnmatch import fnmatch
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from payintent.cli.common import TOKEN_ENV
from payintent.http.server import _STOP_WAIT_S
from payintent.runtime.processes.child import END_MAX_S
from payintent.runtime.settings import Settings
from tests.docs.command_line import check_command, find_commands
from tests.docs.parse_pages import ROOT, blocks, page, spans
from tests.support.routes import ROUTES

_PAGE = "".join(page(f"docs/operate/{name}.md") for name in ("install", "go-live", "upgrade"))
_CONTAINERS = page("docs/operate/kubernetes.md")
_PYTHON = [path.read_text() for path in (ROOT / "payintent").rglob("*.py")]
_UNITS = ["payintent-api@.service", "payintent-worker@.service", "payintent-migrate.service"]
_HARDENING = "payintent-.service.d/hardening.conf"
_STOP_S = 25
_PROGRAM = "/opt/payintent/bin/payintent"
_INSTALLS = re.compile(r"\bpip (?:--python \S+ )?(?:install|wheel) ")
_SECRETS = re.compile(r"PEPPER|KEYRING|SECRET|PASSWORD|DATABASE_URL")


class _Unit(configparser.ConfigParser):
    """A parsed unit file. Only the last value of a repeated key is kept."""

    def __init__(self, name: str) -> None:
        super().__init__(interpolation=None, strict=False)
        self.read_string(page(f"deploy/systemd/{name}"))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _compose() -> dict[str, Any]:
    return yaml.safe_load(page("deploy/compose.yaml"))["services"]


def _own_services() -> dict[str, dict[str, Any]]:
    return {
        name: service for name, service in _compose().items() if service["image"] == "payintent"
    }


def _read_instructions(instruction: str) -> list[str]:
    text = re.sub(r"\\\n\s*", "", page("Dockerfile"))
    return re.findall(rf"^{instruction} (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("unit", _UNITS)
def test_a_unit_runs_the_command_in_its_name(unit: str) -> None:
    words = shlex.split(_Unit(unit)["Service"]["ExecStart"].replace("%i", "8080"))
    assert words[0] == _PROGRAM
    assert unit.startswith(f"payintent-{check_command(words[1:])}")


@pytest.mark.parametrize("unit", _UNITS[:2])
def test_a_serving_unit_starts_after_migrations_and_has_time_to_stop(unit: str) -> None:
    section = _Unit(unit)
    for word in ("Wants", "After"):
        assert "payintent-migrate.service" in section["Unit"][word].split()
    assert section["Service"]["Restart"] == "on-failure"
    assert int(section["Service"]["TimeoutStopSec"]) == _STOP_S > _STOP_WAIT_S


def test_a_failing_migration_is_retried_forever_and_does_not_block_other_units() -> None:
    for unit in _UNITS:
        section = _Unit(unit)
        assert not {"Requires", "Requisite", "BindsTo"} & set(section["Unit"])
        assert section["Unit"]["StartLimitIntervalSec"] == "0"
        assert section["Service"]["Restart"] == "on-failure"
    migrate = _Unit("payintent-migrate.service")["Service"]
    [wait_s] = re.findall(r"--wait-s (\d+)$", migrate["ExecStart"])
    assert int(wait_s) <= 60  # units start when this wait ends
    assert migrate["TimeoutStartSec"] == "15min"
    assert "allows 15 minutes for each attempt" in _PAGE
    assert (
        f"retries `migrate` after {migrate['RestartSec']} seconds, as often as necessary" in _PAGE
    )


@pytest.mark.parametrize("unit", _UNITS[:2])
def test_a_serving_unit_can_be_reloaded_and_signals_only_its_supervisor(
    unit: str,
) -> None:
    service = _Unit(unit)["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > END_MAX_S
    assert END_MAX_S > _STOP_WAIT_S


def test_all_units_share_a_hardening_file() -> None:
    hardened = _Unit(_HARDENING)["Service"]
    for name in ("NoNewPrivileges", "DynamicUser", "MemoryDenyWriteExecute", "PrivateUsers"):
        assert hardened[name] == "yes", name
    assert hardened["ProtectSystem"] == "strict"
    assert hardened["CapabilityBoundingSet"] == ""
    files = re.findall(
        r"^EnvironmentFile=(.+)$", page(f"deploy/systemd/{_HARDENING}"), re.MULTILINE
    )
    assert files == ["/etc/payintent/payintent.env", "-/etc/payintent/%p.env"]
    for process in ("worker", "migrate"):  # %p is the unit's name before the @
        assert f"/etc/payintent/payintent-{process}.env" in _PAGE
    assert "AF_NETLINK" in hardened["RestrictAddressFamilies"]
    assert "ProcSubset" not in hardened  # with ProcSubset, the `process_…` metrics are missing
    for unit in _UNITS:  # the drop-in folder applies to this prefix
        assert unit.startswith("payintent-")
        assert not set(_Unit(unit)["Service"]) & set(hardened)


def test_the_example_settings_exist_and_include_every_required_setting() -> None:
    lines = page("deploy/payintent.env.example").splitlines()
    names = {line.partition("=")[0] for line in lines if line and line[0] != "#"}
    existing = {f"PAYINTENT_{name.upper()}" for name in Settings.model_fields} | {"DATABASE_URL"}
    required = {name for name, field in Settings.model_fields.items() if field.is_required()}
    assert names <= existing
    assert {f"PAYINTENT_{name.upper()}" for name in required - {"database_url"}} <= names
    assert "DATABASE_URL" in names


def test_the_image_installs_only_hashed_packages_and_our_own() -> None:
    installs = [
        item.strip()
        for line in _read_instructions("RUN")
        for item in line.split("&&")
        if _INSTALLS.search(item)
    ]
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
        assert "--require-hashes" in install or re.search(
            "--no-index|--no-build-isolation", install
        ), install
    for name in _build_requirements():
        assert re.search(rf"^{name}==", page("requirements/build.txt"), re.MULTILINE), name


def _build_requirements() -> list[str]:
    required = tomllib.loads(page("pyproject.toml"))["build-system"]["requires"]
    return [re.split(r"[<>=!~]", item)[0] for item in required]


def test_the_image_is_unprivileged_has_no_secret_and_has_a_health_check() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", _read_instructions("USER")[-1])
    assert not [item for item in _read_instructions("(?:ENV|ARG)") if _SECRETS.search(item)]
    [health] = _read_instructions("HEALTHCHECK")
    [path] = re.findall(r"http://127\.0\.0\.1:8080(/\w+)", health)
    assert path in {route.path for route in ROUTES}
    assert _read_instructions("ENTRYPOINT") == ['["payintent"]']
    assert check_command(yaml.safe_load(_read_instructions("CMD")[-1])) == "api"


def test_every_image_is_pinned_by_a_digest_and_has_no_default() -> None:
    stages = [line.split()[0] for line in _read_instructions("FROM")]
    assert [stage for stage in stages if _is_bare(stage)] == []
    assert all("=" not in item for item in _read_instructions("ARG"))
    assert any("*@sha256:*" in item for item in _read_instructions("RUN"))
    images = [item["image"] for item in _compose().values() if item["image"] != "payintent"]
    assert len(images) == 2
    assert [image for image in images if _is_bare(image)] == []
    assert not _is_bare(_own_services()["api"]["build"]["args"]["PYTHON_IMAGE"])


def _is_bare(image: str) -> bool:
    """Return whether an image has no digest, except for a variable without a default."""
    is_required_variable = re.fullmatch(r"\$\{[A-Z_]+(?::\?[^}]*)?\}", image)
    return not is_required_variable and not re.search(r"@sha256:[0-9a-f]{64}\Z", image)


@pytest.mark.parametrize("image", ["postgres:17", "nginx", "${IMAGE:-nginx:1.28}", "a@sha256:0"])
def test_an_image_without_a_digest_is_found(image: str) -> None:
    assert _is_bare(image)


def test_the_last_stage_of_the_image_has_no_installer() -> None:
    _, _, last = page("Dockerfile").rpartition("\nFROM ")
    assert re.search(r"pip uninstall .*\bpip\b", last)
    assert not _INSTALLS.search(last)
    assert "--without-pip /opt/payintent" in page("Dockerfile")


def test_the_build_context_contains_the_sources_of_the_wheel_and_no_secrets() -> None:
    lines = [line for line in page(".dockerignore").splitlines() if line[:1] != "#"]
    allowed = [line[1:].rstrip("/") for line in lines if line.startswith("!")]
    assert lines[0] == "*"
    project = tomllib.loads(page("pyproject.toml"))
    build = project["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    sources = {*wheel["packages"], *wheel.get("force-include", {}), project["project"]["readme"]}
    sources |= {"pyproject.toml", "requirements", build["hooks"]["custom"]["path"]}
    for item in sources:
        assert any(fnmatch(path, rule) for path in _parents(item) for rule in allowed), item
    assert not {Path(rule).parts[0] for rule in allowed} & {"var", "deploy", "tests", ".git"}


def _parents(path: str) -> list[str]:
    return [path, *(str(parent) for parent in Path(path).parents)][:-1]


def test_the_compose_example_runs_valid_commands_and_lets_them_finish() -> None:
    services = _own_services()
    assert {check_command(item["command"]) for item in services.values()} == {
        "api",
        "worker",
        "migrate",
    }
    for service in services.values():
        assert service["stop_grace_period"] == f"{_STOP_S}s"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "environment" not in service
        assert service["env_file"][0] == "payintent.env"
    for process in ("worker", "migrate"):
        assert services[process]["env_file"][1:] == [f"payintent-{process}.env"]
        assert f"payintent-{process}.env" in _CONTAINERS
    assert "healthcheck" in services["worker"]
    assert services["worker"]["volumes"] == ["copies:/tmp"]  # copies of gateway files
    assert not _SECRETS.search(re.sub("POSTGRES_PASSWORD_FILE", "", page("deploy/compose.yaml")))


def test_the_compose_example_mounts_existing_files() -> None:
    for item in _compose().values():
        for volume in item.get("volumes", []):
            source = volume.partition(":")[0]
            if source not in {"database", "copies", "./tls"}:
                assert (ROOT / "deploy" / source).is_file(), volume


def test_the_compose_example_publishes_only_the_ports_of_the_proxy() -> None:
    published = {
        name: service["ports"] for name, service in _compose().items() if "ports" in service
    }
    assert published == {"proxy": ["80:80", "443:443"]}


def test_the_compose_example_has_fixed_addresses_and_the_api_trusts_the_proxy() -> None:
    services = _compose()
    assert [name for name, service in services.items() if "network_mode" in service] == []
    assert {name for name, service in services.items() if "networks" in service} == {"api", "proxy"}
    api, proxy = (services[name]["networks"]["front"]["ipv4_address"] for name in ("api", "proxy"))
    [subnet] = yaml.safe_load(page("deploy/compose.yaml"))["networks"]["front"]["ipam"]["config"]
    usable = [str(host) for host in ip_network(subnet["subnet"]).hosts()]
    assert {api, proxy} < set(usable[1:])  # the bridge has the first address
    assert services["proxy"]["networks"].keys() == {"front"}
    command = services["api"]["command"]
    assert command[command.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - in the container
    assert "--operator-host" not in command  # the default is loopback
    assert f"server {api}:8080 max_fails=0;" in _CONTAINERS
    assert f"`PAYINTENT_EDGE_TRUSTED_PROXIES={proxy}`" in _CONTAINERS
    assert f"\nPAYINTENT_EDGE_TRUSTED_PROXIES={proxy}\n" in page("deploy/payintent.env.example")
    assert subnet["subnet"] in _CONTAINERS


def test_every_command_on_the_pages_is_valid() -> None:
    commands = find_commands(_PAGE + page("docs/operate/backup.md"))
    for words in commands:
        check_command(words)
    assert {"api", "worker", "migrate", "doctor", "refund"} <= {words[0] for words in commands}


def test_every_metric_and_setting_on_the_pages_exists() -> None:
    metrics = {span for span in spans(_PAGE) if re.fullmatch(r"payintent_\w+", span)}
    metrics -= set(re.findall(r"CREATE ROLE (\w+)", page("deploy/database/roles.sql")))
    assert len(metrics) > 1
    for name in metrics:
        assert any(f'"{name}"' in text for text in _PYTHON), name
    existing = {f"PAYINTENT_{name.upper()}" for name in Settings.model_fields} | {TOKEN_ENV}
    assert set(re.findall(r"PAYINTENT_[A-Z_]+", _PAGE)) <= existing


def test_every_file_in_the_deploy_folder_is_named_on_a_page() -> None:
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file() and path.parent.name != "ha":  # these files have a separate page
            assert _is_named(str(path.relative_to(ROOT))), path


def _is_named(name: str) -> bool:
    """Return whether a page names a file. For files of the chart, the folder is enough."""
    chart = "deploy/helm/payintent"
    pages = _PAGE + _CONTAINERS + page("docs/operate/scale.md")
    return (chart if name.startswith(f"{chart}/") else name) in pages


def test_the_monitoring_query_runs(database_url: str) -> None:
    [query] = [block for block in blocks(_PAGE, "sql") if block.startswith("-- example: watch")]

    async def run_query() -> asyncpg.Record:
        connection = await asyncpg.connect(database_url)
        [row] = await connection.fetch(query)
        await connection.close()
        return row

    assert dict(asyncio.run(run_query())) == {"overdue": 0, "undelivered": 0, "open_cases": 0}


def test_the_stop_timeout_on_the_pages_matches_the_units() -> None:
    assert f"after {_STOP_S} seconds" in _PAGE
    assert f"{_STOP_S} seconds" in page("docs/operate/run.md")
