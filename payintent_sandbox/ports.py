"""The ports of the sandbox, and a check for ports that are in use."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

API_PORT = 8080
CHAIN_PORTS = (8545, 8546, 8547)  # wallets expect development chains here
_METRICS_AFTER, _CHAINS_AFTER, _GATEWAYS_AFTER = 4, 5, 8  # offsets from the base
_BASE_MAX = 65_535 - _GATEWAYS_AFTER - 2  # keeps the last port valid


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the sandbox: `PORT_BASE` and the following ports."""

    api: int
    simulator: int
    shop: int
    operator: int
    chains: tuple[int, ...] = CHAIN_PORTS
    stripe: int = API_PORT + _GATEWAYS_AFTER
    ecpay: int = API_PORT + _GATEWAYS_AFTER + 1
    twoc2p: int = API_PORT + _GATEWAYS_AFTER + 2
    metrics: int = API_PORT + _METRICS_AFTER  # the worker's; the API's are on the operator port

    @staticmethod
    def from_base(base: int) -> "Ports":
        """Return the ports, starting at a base."""
        first = base + _CHAINS_AFTER
        chain_ports = tuple(range(first, first + len(CHAIN_PORTS)))
        gateway_ports = (base + _GATEWAYS_AFTER + index for index in range(3))
        metrics = base + _METRICS_AFTER
        return Ports(
            *(base, base + 1, base + 2, base + 3), chain_ports, *gateway_ports, metrics=metrics
        )

    @staticmethod
    def from_environment() -> "Ports":
        """Return the ports from `PORT_BASE` upwards, or the default ports."""
        if base := os.environ.get("PORT_BASE"):
            if not (base.isascii() and base.isdecimal() and 0 < int(base) <= _BASE_MAX):
                raise ValueError(f"PORT_BASE must be a number from 1 to {_BASE_MAX}")
            return Ports.from_base(int(base))
        return replace(Ports.from_base(API_PORT), chains=CHAIN_PORTS)

    @property
    def all(self) -> tuple[int, ...]:
        """List all ports of the sandbox."""
        first = (self.api, self.simulator, self.shop, self.operator, self.metrics)
        return (*first, *self.chains, *self.gateways)

    @property
    def gateways(self) -> tuple[int, ...]:
        """Return the ports of all emulators except the simulator."""
        return (self.stripe, self.ecpay, self.twoc2p)


def taken(ports: Sequence[int]) -> list[int]:
    """Return the ports that are already in use."""
    return [port for port in ports if _is_taken(port)]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
