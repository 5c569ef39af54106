"""Ports of the processes that tests start are not handed out to connections meanwhile."""

import socket
from pathlib import Path

from tests.support.world import free_port


def test_a_port_is_none_that_the_system_hands_out_and_none_that_was_found_before() -> None:
    handed_out = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [free_port() for _ in range(50)]
    assert max(ports) < int(handed_out[0])
    assert len(set(ports)) == 50


def test_a_port_that_is_listened_on_is_not_found() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        taken = listener.getsockname()[1]
        assert taken not in {free_port() for _ in range(200)}
