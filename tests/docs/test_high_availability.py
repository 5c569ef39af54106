"""docs/operate/high-availability.md and deploy/ha follow the rules that prevent data loss."""

import configparser
import re
from typing import Any

import yaml

from drills.ha import service
from drills.ha.faults import FAULTS
from drills.ha.network import DATABASES, ETCDS, address
from drills.ha.programs import LEADER_PORT, PACKAGES, POOL_PORT, STATUS_PORT
from tests.docs.parse_pages import ROOT, page, section

_PAGE = page("docs/operate/high-availability.md")
_PATRONI: dict[str, Any] = yaml.safe_load(page("deploy/ha/patroni.yml"))
_HAPROXY = page("deploy/ha/haproxy.cfg")


def test_a_commit_is_acknowledged_only_after_a_second_host_has_it() -> None:
    dcs = _PATRONI["bootstrap"]["dcs"]
    assert dcs["synchronous_mode"] is True
    assert dcs["synchronous_mode_strict"] is True
    assert dcs["failsafe_mode"] is True
    assert "synchronous_commit" not in dcs["postgresql"]["parameters"]  # it is on by default


def test_jit_is_off_for_connections_through_a_pooler() -> None:
    """Otherwise, PostgreSQL compiles the driver's type query for every connection."""
    assert _PATRONI["bootstrap"]["dcs"]["postgresql"]["parameters"]["jit"] == "off"
    for role in ("payintent_api", "payintent_worker"):
        assert f"ALTER ROLE {role} SET jit = off;" in page("deploy/database/pooled.sql")
    assert "ALTER ROLE payintent SET jit = off;" in service._ROLE


def test_a_lease_lasts_longer_than_its_renewal_can_take() -> None:
    dcs = _PATRONI["bootstrap"]["dcs"]
    assert dcs["loop_wait"] + 2 * dcs["retry_timeout"] <= dcs["ttl"]
    assert f"`ttl` ({dcs['ttl']} s)" in _PAGE


def test_haproxy_drops_root_privileges() -> None:
    global_section = _HAPROXY.partition("\ndefaults\n")[0]
    assert re.search(r"^    user haproxy\n    group haproxy$", global_section, re.MULTILINE)


def test_haproxy_checks_every_database_once_a_second_and_disconnects_old_leaders() -> None:
    [defaults] = re.findall(r"default-server (.+)", _HAPROXY)
    assert "inter 1s" in defaults
    assert "on-marked-down shutdown-sessions" in defaults
    assert f"bind 127.0.0.1:{LEADER_PORT}" in _HAPROXY
    leader = _HAPROXY.partition("listen leader")[2].partition("listen standbys")[0]
    assert "OPTIONS /primary" in leader
    for number, host in enumerate(DATABASES, 1):
        assert f"server db{number} {address(host)}:5432 check port {STATUS_PORT}" in leader


def test_reads_use_a_single_standby_at_a_time() -> None:
    """The service reads the replication lag on a single connection, so all reads use that host."""
    standbys = _HAPROXY.partition("listen standbys")[2]
    assert "OPTIONS /replica?lag=1MB" in standbys
    words = [line.split() for line in standbys.splitlines()]
    for option in ("balance first", "stick-table type ip size 16", "stick on dst"):
        assert option.split() in words


def test_pgbouncer_connects_to_haproxy_and_no_value_has_a_trailing_comment() -> None:
    """PgBouncer parses a comment after a value as part of the value, and fails to start."""
    text = page("deploy/ha/pgbouncer.ini")
    configuration = configparser.ConfigParser(interpolation=None)
    configuration.read_string(text)
    assert configuration["pgbouncer"]["pool_mode"] == "transaction"
    assert configuration["pgbouncer"]["listen_port"] == str(POOL_PORT)
    assert f"port={LEADER_PORT}" in configuration["databases"]["payintent"]
    assert not [value for value in configuration["pgbouncer"].values() if ";" in value]
    for port in (LEADER_PORT, POOL_PORT):
        assert f"@127.0.0.1:{port}/payintent" in _PAGE


def test_etcd_enables_its_json_gateway_and_lists_all_members() -> None:
    etcd = yaml.safe_load(page("deploy/ha/etcd.yml"))
    assert etcd["enable-grpc-gateway"] is True
    members = [f"{host}=http://{address(host)}:2380" for host in ETCDS]
    assert etcd["initial-cluster"].split(",") == members
    assert _PATRONI["etcd3"]["hosts"] == [f"{address(host)}:2379" for host in ETCDS]


def test_every_password_in_the_files_is_a_placeholder() -> None:
    passwords = re.findall(r"password: ?([\w-]+)", page("deploy/ha/patroni.yml"))
    assert len(passwords) == 4
    assert all(password.startswith("change-me") for password in passwords)
    assert len(set(passwords)) == len(passwords)


def test_the_page_names_every_fault_and_every_package() -> None:
    faults = re.findall(
        r"`([\w-]+)`", section(_PAGE, "## Run the failover drill").rpartition("comma-separated:")[2]
    )
    assert faults == [fault.name for fault in FAULTS]
    titles = [line.split("|")[1].strip() for line in _PAGE.splitlines() if line.startswith("| ")]
    assert [fault.title for fault in FAULTS if fault.title not in titles] == []
    for package in ("etcd-server", "haproxy", "pgbouncer", "postgresql-15"):
        assert package in PACKAGES.values()
        assert package in section(_PAGE, "## Install")


def test_every_file_in_the_folder_is_on_the_page_and_states_its_destination() -> None:
    for path in sorted((ROOT / "deploy" / "ha").iterdir()):
        assert f"`deploy/ha/{path.name}`" in _PAGE
        assert re.search(r" /etc/[\w/.-]+", path.read_text().splitlines()[0]), path.name
