"""Ports for the servers of tests are not taken by other test processes or connections."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.support.ports import FREE_PORTS, free_port, free_port_base


def test_a_free_port_is_outside_the_ephemeral_range_and_not_returned_twice() -> None:
    handed_out = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [free_port() for _ in range(50)]
    assert max(ports) < int(handed_out[0])
    assert len(set(ports)) == 50


def test_a_port_in_use_is_not_returned() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        port = listener.getsockname()[1]
        assert port not in {free_port() for _ in range(200)}


def test_a_port_reserved_by_another_process_is_not_returned() -> None:
    """The other process does not listen on its port yet."""
    port, base = free_port(), free_port_base()
    program = f"""
from tests.support import ports
ports.FREE_PORTS = [{port}]
ports.SANDBOX_BASES = [{base}]
for find in (ports.free_port, ports.free_port_base):
    try:
        print(find())
    except AssertionError as error:
        print(error)
"""
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert output == "no free port\nno free port\n"


def test_a_port_that_browsers_block_is_not_returned() -> None:
    refused = {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6679, 6697, 10080}
    assert refused.isdisjoint(FREE_PORTS)
    assert {*range(6665, 6670)}.isdisjoint(FREE_PORTS)
