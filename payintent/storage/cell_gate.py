"""Keeps a cell that does not answer from holding what requests of other cells need.

Where there are several cells one process serves all of them. What waits for one that is frozen
would hold the places of its lane for seconds, so that requests of other cells wait too. With one
cell there is no gate: who waits for the only database waits for no one else's.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from prometheus_client import Counter

from payintent.domain.errors import CellRestsError, StorageUnavailableError
from payintent.slot import release_of_request

#: After so long without any answer of a cell, what waits for it holds no place of a lane.
SILENT_S = 0.25
#: After a connection to a cell failed nothing is asked of it for so long; then one tries first.
REST_S = 0.5

#: After so long without an answer operators are told; what fails once has another try by then.
AWAY_S = 2.0

TURNED_AWAY = Counter(
    "payintent_cell_turned_away_total",
    "What was to be asked of a cell, and was not, because the cell does not answer",
    ["cell"],
)
_inside: ContextVar["CellGate | None"] = ContextVar("inside_cell_gate", default=None)


class CellGate:
    """What waits for the answers of one cell, as long as they come; at most so many if not."""

    def __init__(
        self, waiting_max: int, clock: Callable[[], float] = monotonic, cell: int = 0
    ) -> None:
        """Let at most so many wait while a cell is silent; its number is for the figures."""
        self._waiting_max = waiting_max
        self._turned_away = TURNED_AWAY.labels(str(cell))
        self._clock = clock
        self._waiting: dict[
            object, Callable[[], None] | None
        ] = {}  # what hands on each one's place
        self._heard_at = 0.0  # an answer, or the first that waits after none did
        self._has_answered = False
        self._lost_at: float | None = None  # the first that got no answer, since the last one
        self._is_shut = False
        self._why = ""  # no connection could be opened
        self._rests_until = 0.0
        self._is_tried = False  # whether one asks while it is shut
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Tell whether something waits, and nothing was answered for a while."""
        return bool(self._waiting) and self._clock() - self._heard_at >= SILENT_S

    @property
    def away_s(self) -> float | None:
        """Return for how long the cell has not answered what it was asked; None where it does."""
        if self._lost_at is not None:
            return self._clock() - self._lost_at
        return self._clock() - self._heard_at if self.is_silent else None

    @property
    def is_away(self) -> bool:
        """Tell whether no connection can be opened, or nothing was answered for two seconds."""
        away_s = self.away_s
        return away_s is not None and (self._is_shut or away_s >= AWAY_S)

    @property
    def has_answered(self) -> bool:
        """Tell whether the cell has ever answered this process."""
        return self._has_answered

    def is_inside(self) -> bool:
        """Tell whether the task that runs is counted already."""
        return _inside.get() is self

    def let_in(self) -> None:
        """Count no more of what the task that runs does: those for whom it does it are counted."""
        _inside.set(self)

    @contextmanager
    def enter(self) -> Generator[None]:
        """Wait for an answer of the cell inside the block; what is counted already just goes on.

        Raises `CellRestsError` where the cell rests, or where it is silent and enough wait.
        """
        if self.is_inside():
            yield
            return
        tries = self._admit()
        me = object()
        self._begin(me)
        token = _inside.set(self)
        try:
            yield
        finally:
            _inside.reset(token)
            del self._waiting[me]
            if tries:
                self._is_tried = False

    @contextmanager
    def ask(self) -> Generator[None]:
        """Ask the cell inside the block, as `enter`; its end is an answer, unless it was lost."""
        with self.enter():
            began_at = self._clock()
            try:
                yield
            except StorageUnavailableError:
                self._lose(began_at)
                raise
            except Exception:
                self.hear()  # that a statement is refused is an answer
                raise
            self.hear()

    def hear(self) -> None:
        """Note that the cell answers."""
        self._heard_at = self._clock()
        self._has_answered = True
        self._lost_at = None
        self._is_shut = False

    def fail(self, since: float, why: str) -> None:
        """Let the cell rest, unless it has answered others since this one began to connect."""
        if self._heard_at <= since:
            self._is_shut, self._why = True, why
            self._rests_until = self._clock() + REST_S
            self._lose(since)

    def now(self) -> float:
        """Return the time that `fail` is told."""
        return self._clock()

    def _lose(self, since: float) -> None:
        """Note that one got no answer, unless others have got one since it asked."""
        if self._lost_at is None and self._heard_at <= since:
            self._lost_at = since

    def _admit(self) -> bool:
        """Tell whether this one tries for all; raise where it may not wait."""
        if self._is_shut:
            if self._is_tried or self._clock() < self._rests_until:
                self._turned_away.inc()
                raise CellRestsError(self._why)
            self._is_tried = True
            return True
        if len(self._waiting) >= self._waiting_max and self.is_silent:
            self._turned_away.inc()
            raise CellRestsError("its cell does not answer, and enough wait for it")
        return False

    def _begin(self, me: object) -> None:
        if not self._waiting:
            self._heard_at = max(self._heard_at, self._clock())
        leave = release_of_request.get()
        if leave is not None and (self._is_shut or self.is_silent):
            leave()
            leave = None
        self._waiting[me] = leave
        if self._timer is None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._look)

    def _look(self) -> None:
        """Hand on the places of all that wait for a silent cell."""
        self._timer = None
        if self.is_silent:
            for me, leave in self._waiting.items():
                if leave is not None:
                    leave()
                    self._waiting[me] = None
        if self._waiting:
            self._look_later()
