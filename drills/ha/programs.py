"""The cluster's programs on their hosts, with the configuration files from deploy/ha.

The drill changes only names, addresses, folders, passwords and the watchdog in these files.
"""

import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from drills.ha.network import DATABASES, ETCDS, address, within
from drills.processes import Program

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "deploy" / "ha"
POSTGRES = Path("/usr/lib/postgresql/15/bin")
#: The Debian package of each program.
PACKAGES = {
    "ip": "iproute2",
    "iptables": "iptables",
    "setpriv": "util-linux",
    "etcd": "etcd-server",
    "haproxy": "haproxy",
    "pgbouncer": "pgbouncer",
    "nginx": "nginx",
    str(POSTGRES / "postgres"): "postgresql-15",
}
USER = "payintent"
LEADER_PORT, POOL_PORT, STATUS_PORT = 5000, 6432, 8008
_ALSO_IN = ("/usr/sbin", "/sbin")
# PostgreSQL cannot run as root. With this command, it runs as `nobody`, who can read, but not write
# to, a checkout in root's home directory.
NOBODY = (
    *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
    "--securebits=+no_setuid_fixup",
)


def missing_packages() -> list[str]:
    """Return the required Debian packages that are not installed."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_ALSO_IN])
    return [package for name, package in PACKAGES.items() if not shutil.which(name, path=path)]


@dataclass(frozen=True, slots=True)
class Passwords:
    superuser: str = field(default_factory=secrets.token_hex, repr=False)
    replication: str = field(default_factory=secrets.token_hex, repr=False)
    rewind: str = field(default_factory=secrets.token_hex, repr=False)
    rest: str = field(default_factory=secrets.token_hex, repr=False)
    service: str = field(default_factory=secrets.token_hex, repr=False)


def etcd(host: str, folder: Path) -> Program:
    """Return an etcd member."""
    config = yaml.safe_load((SHIPPED / "etcd.yml").read_text())
    first, own = address(ETCDS[0]), address(host)
    config |= {
        name: value.replace(first, own)
        for name, value in config.items()
        if isinstance(value, str) and name.endswith("-urls")
    }
    config |= {"name": host, "data-dir": str(folder / host)}
    path = folder / f"{host}.yml"
    path.write_text(yaml.safe_dump(config))
    words = ["etcd", "--config-file", str(path)]
    return Program(host, [*within(host), *words], {}, folder)


def patroni(host: str, folder: Path, patroni_bin: Path, passwords: Passwords) -> Program:
    """Return a host's Patroni program, which runs PostgreSQL."""
    config: dict[str, Any] = yaml.safe_load((SHIPPED / "patroni.yml").read_text())
    own = folder / host
    own.mkdir(exist_ok=True)
    shutil.chown(own, "nobody", "nogroup")
    config["name"] = host
    config["restapi"] |= {
        "listen": f"{address(host)}:{STATUS_PORT}",
        "connect_address": f"{address(host)}:{STATUS_PORT}",
        "authentication": {"username": "patroni", "password": passwords.rest},
    }
    postgresql = config["postgresql"]
    postgresql |= {
        "listen": f"{address(host)}:5432",
        "connect_address": f"{address(host)}:5432",
        "data_dir": str(own / "data"),
        "bin_dir": str(POSTGRES),
        "pgpass": str(own / "pgpass"),
    }
    for name in ("superuser", "replication", "rewind"):
        postgresql["authentication"][name]["password"] = getattr(passwords, name)
    postgresql["parameters"]["unix_socket_directories"] = str(own)
    config["watchdog"]["mode"] = "off"  # the hosts share a kernel
    path = own / "patroni.yml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    shutil.chown(path, "nobody", "nogroup")
    command = [*within(host), *NOBODY, str(patroni_bin), str(path)]
    return Program(host, command, {"LC_ALL": "C.UTF-8"}, folder)


def haproxy(folder: Path) -> Program:
    text = (SHIPPED / "haproxy.cfg").read_text()
    path = folder / "haproxy.cfg"
    path.write_text(text.replace("/run/haproxy/admin.sock", str(folder / "haproxy.sock")))
    return Program("haproxy", ["haproxy", "-db", "-f", str(path)], {}, folder)


def pgbouncer(folder: Path, passwords: Passwords) -> Program:
    own = folder / "pgbouncer"
    own.mkdir()
    users, path = own / "userlist.txt", own / "pgbouncer.ini"
    users.write_text(f'"{USER}" "{passwords.service}"\n')
    text = (SHIPPED / "pgbouncer.ini").read_text()
    text = text.replace("/etc/pgbouncer/userlist.txt", str(users))
    path.write_text(text.replace("/run/postgresql/pgbouncer.pid", str(own / "pid")))
    for owned_path in (own, users, path):
        shutil.chown(owned_path, "nobody", "nogroup")
    users.chmod(0o600)
    return Program("pgbouncer", [*NOBODY, "pgbouncer", str(path)], {}, folder)


def databases(folder: Path, patroni_bin: Path, passwords: Passwords) -> dict[str, Program]:
    """Return the programs of the etcd and database hosts, by host."""
    programs = {host: etcd(host, folder) for host in ETCDS}
    return programs | {host: patroni(host, folder, patroni_bin, passwords) for host in DATABASES}
