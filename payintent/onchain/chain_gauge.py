"""A figure of a chain over all cells: each cell's watcher sets its own, and one hides no other."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from prometheus_client import Gauge


class ChainGauge:
    """A metric with the label `chain`, combined of what each cell's watcher has set."""

    def __init__(self, name: str, text: str, combine: Callable[[Iterable[float]], float]) -> None:
        self.gauge = Gauge(name, text, ["chain"])
        self._combine = combine
        self._set: dict[str, dict[int, float]] = {}

    def set(self, chain: str, cell: int, value: float) -> None:
        """Set the figure of one cell."""
        self._set.setdefault(chain, {})[cell] = value
        self._show(chain)

    def forget(self, chain: str, cell: int) -> None:
        """Leave the figure of one cell to the process that watches it now."""
        self._set.get(chain, {}).pop(cell, None)
        self._show(chain)

    def _show(self, chain: str) -> None:
        values = self._set.get(chain)
        if values:
            self.gauge.labels(chain).set(self._combine(values.values()))
            return
        with suppress(KeyError):
            self.gauge.remove(chain)
