"""The deployment page and its files: units, image, and the example of a complete host."""

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
from tests.docs.command_line import take, written
from tests.docs.reading import ROOT, blocks, page, spans
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
    """Parse a unit file. Only the last value of a repeated key is read."""

    def __init__(self, name: str) -> None:
        super().__init__(interpolation=None, strict=False)
        self.read_string(page(f"deploy/systemd/{name}"))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _compose() -> dict[str, Any]:
    return yaml.safe_load(page("deploy/compose.yaml"))["services"]


def _ours() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in _compose().items() if one["image"] == "payintent"}


def _dockerfile(instruction: str) -> list[str]:
    whole = re.sub(r"\\\n\s*", "", page("Dockerfile"))
    return re.findall(rf"^{instruction} (.+)$", whole, re.MULTILINE)


@pytest.mark.parametrize("unit", _UNITS)
def test_a_unit_starts_the_command_that_it_is_named_for(unit: str) -> None:
    words = shlex.split(_Unit(unit)["Service"]["ExecStart"].replace("%i", "8080"))
    assert words[0] == _PROGRAM
    assert unit.startswith(f"payintent-{take(words[1:])}")


@pytest.mark.parametrize("unit", _UNITS[:2])
def test_a_unit_that_serves_has_migrated_first_and_is_given_time_to_stop(unit: str) -> None:
    read = _Unit(unit)
    for word in ("Wants", "After"):
        assert "payintent-migrate.service" in read["Unit"][word].split()
    assert read["Service"]["Restart"] == "on-failure"
    assert int(read["Service"]["TimeoutStopSec"]) == _STOP_S > _STOP_WAIT_S


def test_a_migrate_that_fails_is_tried_for_ever_and_keeps_no_unit_from_starting() -> None:
    for unit in _UNITS:
        read = _Unit(unit)
        assert not {"Requires", "Requisite", "BindsTo"} & set(read["Unit"])
        assert read["Unit"]["StartLimitIntervalSec"] == "0"
        assert read["Service"]["Restart"] == "on-failure"
    migrate = _Unit("payintent-migrate.service")["Service"]
    [wait_s] = re.findall(r"--wait-s (\d+)$", migrate["ExecStart"])
    assert int(wait_s) <= 60  # the others start only then
    assert migrate["TimeoutStartSec"] == "15min"
    assert "up to 15 minutes each time" in _PAGE
    assert f"{migrate['RestartSec']} seconds later, without a limit" in _PAGE


@pytest.mark.parametrize("unit", _UNITS[:2])
def test_a_unit_that_serves_can_be_reloaded_and_leaves_its_processes_to_their_supervisor(
    unit: str,
) -> None:
    service = _Unit(unit)["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > END_MAX_S
    assert END_MAX_S > _STOP_WAIT_S


def test_every_unit_is_hardened_in_one_place() -> None:
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
    assert "ProcSubset" not in hardened  # else no metric `process_…` is there
    for unit in _UNITS:  # the folder's name is what makes it hold for them
        assert unit.startswith("payintent-")
        assert not set(_Unit(unit)["Service"]) & set(hardened)


def test_the_example_of_the_settings_names_settings_and_all_that_are_required() -> None:
    lines = page("deploy/payintent.env.example").splitlines()
    named = {line.partition("=")[0] for line in lines if line and line[0] != "#"}
    known = {f"PAYINTENT_{name.upper()}" for name in Settings.model_fields} | {"DATABASE_URL"}
    required = {name for name, one in Settings.model_fields.items() if one.is_required()}
    assert named <= known
    assert {f"PAYINTENT_{name.upper()}" for name in required - {"database_url"}} <= named
    assert "DATABASE_URL" in named


def test_the_image_installs_only_what_is_hashed_or_our_own() -> None:
    installs = [
        item.strip()
        for line in _dockerfile("RUN")
        for item in line.split("&&")
        if _INSTALLS.search(item)
    ]
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
        assert "--require-hashes" in install or re.search(
            "--no-index|--no-build-isolation", install
        ), install
    for name in _requires():
        assert re.search(rf"^{name}==", page("requirements/build.txt"), re.MULTILINE), name


def _requires() -> list[str]:
    required = tomllib.loads(page("pyproject.toml"))["build-system"]["requires"]
    return [re.split(r"[<>=!~]", item)[0] for item in required]


def test_the_image_runs_as_nobody_holds_no_secret_and_tells_its_health() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", _dockerfile("USER")[-1])
    assert not [item for item in _dockerfile("(?:ENV|ARG)") if _SECRETS.search(item)]
    [health] = _dockerfile("HEALTHCHECK")
    [path] = re.findall(r"http://127\.0\.0\.1:8080(/\w+)", health)
    assert path in {route.path for route in ROUTES}
    assert _dockerfile("ENTRYPOINT") == ['["payintent"]']
    assert take(yaml.safe_load(_dockerfile("CMD")[-1])) == "api"


def test_no_image_is_named_by_a_tag_alone_or_has_a_default() -> None:
    stages = [line.split()[0] for line in _dockerfile("FROM")]
    assert [stage for stage in stages if _is_bare(stage)] == []
    assert all("=" not in item for item in _dockerfile("ARG"))
    assert any("*@sha256:*" in item for item in _dockerfile("RUN"))
    images = [item["image"] for item in _compose().values() if item["image"] != "payintent"]
    assert len(images) == 2
    assert [image for image in images if _is_bare(image)] == []
    assert not _is_bare(_ours()["api"]["build"]["args"]["PYTHON_IMAGE"])


def _is_bare(image: str) -> bool:
    """Return whether an image has no digest, except for a variable without a default."""
    asked = re.fullmatch(r"\$\{[A-Z_]+(?::\?[^}]*)?\}", image)
    return not asked and not re.search(r"@sha256:[0-9a-f]{64}\Z", image)


@pytest.mark.parametrize("image", ["postgres:17", "nginx", "${IMAGE:-nginx:1.28}", "a@sha256:0"])
def test_a_bare_tag_is_found(image: str) -> None:
    assert _is_bare(image)


def test_the_last_stage_of_the_image_has_nothing_that_installs() -> None:
    _, _, last = page("Dockerfile").rpartition("\nFROM ")
    assert re.search(r"pip uninstall .*\bpip\b", last)
    assert not _INSTALLS.search(last)
    assert "--without-pip /opt/payintent" in page("Dockerfile")


def test_only_what_the_wheel_is_made_of_goes_into_the_images_build() -> None:
    lines = [line for line in page(".dockerignore").splitlines() if line[:1] != "#"]
    allowed = [line[1:].rstrip("/") for line in lines if line.startswith("!")]
    assert lines[0] == "*"
    project = tomllib.loads(page("pyproject.toml"))
    build = project["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel.get("force-include", {}), project["project"]["readme"]}
    needed |= {"pyproject.toml", "requirements", build["hooks"]["custom"]["path"]}
    for item in needed:
        assert any(fnmatch(path, rule) for path in _parents(item) for rule in allowed), item
    assert not {Path(rule).parts[0] for rule in allowed} & {"var", "deploy", "tests", ".git"}


def _parents(path: str) -> list[str]:
    return [path, *(str(parent) for parent in Path(path).parents)][:-1]


def test_the_example_of_a_host_starts_commands_of_the_service_and_lets_them_finish() -> None:
    ours = _ours()
    assert {take(item["command"]) for item in ours.values()} == {"api", "worker", "migrate"}
    for our in ours.values():
        assert our["stop_grace_period"] == f"{_STOP_S}s"
        assert our["read_only"] is True
        assert our["cap_drop"] == ["ALL"]
        assert "environment" not in our
        assert our["env_file"][0] == "payintent.env"
    for process in ("worker", "migrate"):
        assert ours[process]["env_file"][1:] == [f"payintent-{process}.env"]
        assert f"payintent-{process}.env" in _CONTAINERS
    assert "healthcheck" in ours["worker"]
    assert ours["worker"]["volumes"] == ["copies:/tmp"]  # of gateways' files
    assert not _SECRETS.search(re.sub("POSTGRES_PASSWORD_FILE", "", page("deploy/compose.yaml")))


def test_the_example_of_a_host_mounts_files_that_are_there() -> None:
    for item in _compose().values():
        for volume in item.get("volumes", []):
            source = volume.partition(":")[0]
            if source not in {"database", "copies", "./tls"}:
                assert (ROOT / "deploy" / source).is_file(), volume


def test_the_example_of_a_host_publishes_the_proxys_ports_alone() -> None:
    published = {name: one["ports"] for name, one in _compose().items() if "ports" in one}
    assert published == {"proxy": ["80:80", "443:443"]}


def test_the_example_of_a_host_has_a_proxy_that_finds_the_api_again_and_that_it_believes() -> None:
    services = _compose()
    assert [name for name, one in services.items() if "network_mode" in one] == []
    assert {name for name, one in services.items() if "networks" in one} == {"api", "proxy"}
    api, proxy = (services[name]["networks"]["front"]["ipv4_address"] for name in ("api", "proxy"))
    [subnet] = yaml.safe_load(page("deploy/compose.yaml"))["networks"]["front"]["ipam"]["config"]
    usable = [str(host) for host in ip_network(subnet["subnet"]).hosts()]
    assert {api, proxy} < set(usable[1:])  # the first one is the bridge's
    assert services["proxy"]["networks"].keys() == {"front"}
    command = services["api"]["command"]
    assert command[command.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - of the container
    assert "--operator-host" not in command  # loopback
    assert f"server {api}:8080 max_fails=0;" in _CONTAINERS
    assert f"`PAYINTENT_EDGE_TRUSTED_PROXIES={proxy}`" in _CONTAINERS
    assert f"\nPAYINTENT_EDGE_TRUSTED_PROXIES={proxy}\n" in page("deploy/payintent.env.example")
    assert subnet["subnet"] in _CONTAINERS


def test_every_command_on_the_page_is_taken() -> None:
    commands = written(_PAGE + page("docs/operate/backup.md"))
    for words in commands:
        take(words)
    assert {"api", "worker", "migrate", "doctor", "refund"} <= {words[0] for words in commands}


def test_every_metric_and_every_setting_that_the_page_names_exists() -> None:
    metrics = {span for span in spans(_PAGE) if re.fullmatch(r"payintent_\w+", span)}
    metrics -= set(re.findall(r"CREATE ROLE (\w+)", page("deploy/database/roles.sql")))
    assert len(metrics) > 1
    for name in metrics:
        assert any(f'"{name}"' in text for text in _PYTHON), name
    known = {f"PAYINTENT_{name.upper()}" for name in Settings.model_fields} | {TOKEN_ENV}
    assert set(re.findall(r"PAYINTENT_[A-Z_]+", _PAGE)) <= known


def test_every_file_of_the_folder_is_named_on_the_page() -> None:
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file() and path.parent.name != "ha":  # those have a page of their own
            assert _is_named(str(path.relative_to(ROOT))), path


def _is_named(name: str) -> bool:
    """Return whether a page names a file, or the chart's folder for its files."""
    chart = "deploy/helm/payintent"
    pages = _PAGE + _CONTAINERS + page("docs/operate/scale.md")
    return (chart if name.startswith(f"{chart}/") else name) in pages


def test_what_is_to_be_watched_can_be_asked_of_the_database(database_url: str) -> None:
    [query] = [block for block in blocks(_PAGE, "sql") if block.startswith("-- example: watch")]

    async def asked() -> asyncpg.Record:
        connection = await asyncpg.connect(database_url)
        [row] = await connection.fetch(query)
        await connection.close()
        return row

    assert dict(asyncio.run(asked())) == {"overdue": 0, "undelivered": 0, "open_cases": 0}


def test_the_time_to_stop_is_the_same_wherever_it_is_told() -> None:
    assert f"after {_STOP_S} seconds" in _PAGE
    assert f"{_STOP_S} seconds" in page("docs/operate/run.md")
