"""docs/operate/high-availability.md and deploy/ha keep the rules that prevent data loss."""

import configparser
import re
from typing import Any

import yaml

from drills.ha import service
from drills.ha.faults import FAULTS
from drills.ha.network import DATABASES, ETCDS, address
from drills.ha.programs import LEADER_PORT, PACKAGES, POOL_PORT, STATUS_PORT
from tests.docs.reading import ROOT, page, section

_PAGE = page("docs/operate/high-availability.md")
_PATRONI: dict[str, Any] = yaml.safe_load(page("deploy/ha/patroni.yml"))
_HAPROXY = page("deploy/ha/haproxy.cfg")


def test_no_payment_is_acknowledged_before_a_second_host_has_it() -> None:
    dcs = _PATRONI["bootstrap"]["dcs"]
    assert dcs["synchronous_mode"] is True
    assert dcs["synchronous_mode_strict"] is True
    assert dcs["failsafe_mode"] is True
    assert "synchronous_commit" not in dcs["postgresql"]["parameters"]  # on, as PostgreSQL has it


def test_the_drivers_look_at_types_is_not_compiled_at_every_connection_through_a_pooler() -> None:
    assert _PATRONI["bootstrap"]["dcs"]["postgresql"]["parameters"]["jit"] == "off"
    for role in ("payintent_api", "payintent_worker"):
        assert f"ALTER ROLE {role} SET jit = off;" in page("deploy/database/pooled.sql")
    assert "ALTER ROLE payintent SET jit = off;" in service._ROLE


def test_a_lease_is_longer_than_what_it_takes_to_renew_it() -> None:
    dcs = _PATRONI["bootstrap"]["dcs"]
    assert dcs["loop_wait"] + 2 * dcs["retry_timeout"] <= dcs["ttl"]
    assert f"`ttl` ({dcs['ttl']} s)" in _PAGE


def test_haproxy_does_not_stay_root() -> None:
    everywhere = _HAPROXY.partition("\ndefaults\n")[0]
    assert re.search(r"^    user haproxy\n    group haproxy$", everywhere, re.MULTILINE)


def test_haproxy_asks_every_database_each_second_and_cuts_what_leads_no_more() -> None:
    [defaults] = re.findall(r"default-server (.+)", _HAPROXY)
    assert "inter 1s" in defaults
    assert "on-marked-down shutdown-sessions" in defaults
    assert f"bind 127.0.0.1:{LEADER_PORT}" in _HAPROXY
    leader = _HAPROXY.partition("listen leader")[2].partition("listen standbys")[0]
    assert "OPTIONS /primary" in leader
    for number, host in enumerate(DATABASES, 1):
        assert f"server db{number} {address(host)}:5432 check port {STATUS_PORT}" in leader


def test_lists_are_read_at_one_standby_at_a_time() -> None:
    """The service reads the replication lag on one connection, so all hosts must be the same."""
    standbys = _HAPROXY.partition("listen standbys")[2]
    assert "OPTIONS /replica?lag=1MB" in standbys
    words = [line.split() for line in standbys.splitlines()]
    for wanted in ("balance first", "stick-table type ip size 16", "stick on dst"):
        assert wanted.split() in words


def test_pgbouncer_leads_to_haproxy_and_has_no_comment_behind_a_value() -> None:
    """PgBouncer reads a comment after a value as part of the value, and does not start."""
    text = page("deploy/ha/pgbouncer.ini")
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(text)
    assert read["pgbouncer"]["pool_mode"] == "transaction"
    assert read["pgbouncer"]["listen_port"] == str(POOL_PORT)
    assert f"port={LEADER_PORT}" in read["databases"]["payintent"]
    assert not [value for value in read["pgbouncer"].values() if ";" in value]
    for port in (LEADER_PORT, POOL_PORT):
        assert f"@127.0.0.1:{port}/payintent" in _PAGE


def test_etcd_speaks_json_to_patroni_and_knows_all_its_members() -> None:
    etcd = yaml.safe_load(page("deploy/ha/etcd.yml"))
    assert etcd["enable-grpc-gateway"] is True
    members = [f"{host}=http://{address(host)}:2380" for host in ETCDS]
    assert etcd["initial-cluster"].split(",") == members
    assert _PATRONI["etcd3"]["hosts"] == [f"{address(host)}:2379" for host in ETCDS]


def test_every_password_of_the_files_is_one_to_change() -> None:
    found = re.findall(r"password: ?([\w-]+)", page("deploy/ha/patroni.yml"))
    assert len(found) == 4
    assert all(password.startswith("change-me") for password in found)
    assert len(set(found)) == len(found)


def test_the_page_names_every_fault_and_every_package() -> None:
    named = re.findall(
        r"`([\w-]+)`", section(_PAGE, "## Run the failover drill").rpartition("comma-separated:")[2]
    )
    assert named == [fault.name for fault in FAULTS]
    titles = [line.split("|")[1].strip() for line in _PAGE.splitlines() if line.startswith("| ")]
    assert [fault.title for fault in FAULTS if fault.title not in titles] == []
    for package in ("etcd-server", "haproxy", "pgbouncer", "postgresql-15"):
        assert package in PACKAGES.values()
        assert package in section(_PAGE, "## Install")


def test_every_file_of_the_folder_is_in_the_table_and_says_where_it_goes() -> None:
    for path in sorted((ROOT / "deploy" / "ha").iterdir()):
        assert f"`deploy/ha/{path.name}`" in _PAGE
        assert re.search(r" /etc/[\w/.-]+", path.read_text().splitlines()[0]), path.name
