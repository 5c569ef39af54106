"""The default number of processes of an `api` or a `worker`."""

from ipaddress import ip_address

from payintent.config import Settings
from payintent.processes.cores import usable_cores
from payintent.storage.database_hosts import list_hosts


def default_processes(settings: Settings) -> int:
    """Return the number of usable cores, minus 1 if PostgreSQL runs on this host."""
    is_shared = any(map(_is_this_host, list_hosts(settings.direct_url)))
    return max(1, usable_cores() - is_shared)


def _is_this_host(host: str) -> bool:
    """`host` is a socket folder, or a name or an address with a port."""
    name = host.rpartition(":")[0].strip("[]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return host.startswith("/") or name == "localhost" or name.endswith(".localhost")
