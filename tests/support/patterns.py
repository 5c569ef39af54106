"""Check whether a regular expression can backtrack, i.e. match the same text in several ways.

The expression is converted to a Glushkov automaton. A backtracking matcher needs as many steps as
the automaton has paths over prefixes of the text. The number of paths is bounded, and matching
therefore linear, unless a state reaches itself on two paths over the same text (exponential time)
or two consecutive loops read the same text (quadratic time). A search also starts at every
character.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_ALPHABET = frozenset([*range(256), 0x661, 0x4E00, 0xD800])
_MANY = 3  # a repetition with a higher limit counts as unlimited
_CATEGORIES = {
    ops.CATEGORY_DIGIT: str.isdecimal,
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
}
_NEGATED = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
}
_REPEATS = {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}
_NO_WIDTH = {ops.AT, ops.ASSERT, ops.ASSERT_NOT}
Part = tuple[
    bool, frozenset[int], frozenset[int]
]  # whether it may be empty, its first states, its last states
_EMPTY: Part = (True, frozenset(), frozenset())


class _Automaton:
    def __init__(
        self, pattern: str | bytes, flags: int, *, bounded_loops: bool, search: bool
    ) -> None:
        self.chars: list[frozenset[int]] = [_ALPHABET]  # the state before the first character
        self.edges: set[tuple[int, int]] = set()
        self.doubled = False
        self._bounded_loops = bounded_loops
        self._ignore_case = bool(flags & re.IGNORECASE)
        tree = list(parser.parse(pattern, flags))
        anchored = bool(tree) and tree[0] == (ops.AT, ops.AT_BEGINNING) and not flags & re.MULTILINE
        if search and not anchored:
            self.edges.add((0, 0))
            if tree and tree[-1][0] in _REPEATS and tree[-1][1][1] is ops.MAXREPEAT:
                low, _, body = tree[-1][1]  # nothing follows it, so it never backtracks
                tree[-1] = (tree[-1][0], (low, low, body))
        _, first, _ = self._sequence(tree)
        self._connect({0}, first)

    def _connect(self, froms: Iterable[int], tos: Iterable[int]) -> None:
        for edge in product(froms, list(tos)):
            self.doubled |= edge in self.edges
            self.edges.add(edge)

    def _sequence(self, nodes: Iterable[Any]) -> Part:
        whole = _EMPTY
        for node in nodes:
            whole = self._joined(whole, self._part(*node))
        return whole

    def _joined(self, left: Part, right: Part) -> Part:
        self._connect(left[2], right[1])
        first = left[1] | right[1] if left[0] else left[1]
        last = right[2] | left[2] if right[0] else right[2]
        return left[0] and right[0], first, last

    def _part(self, op: Any, value: Any) -> Part:
        if op in _NO_WIDTH:
            return _EMPTY
        if op is ops.SUBPATTERN:
            return self._sequence(value[3])
        if op is ops.ATOMIC_GROUP:
            return self._sequence(value)
        if op is ops.BRANCH:
            ways = [self._sequence(way) for way in value[1]]
            return (
                any(way[0] for way in ways),
                frozenset[int]().union(*(way[1] for way in ways)),
                frozenset[int]().union(*(way[2] for way in ways)),
            )
        if op in _REPEATS:
            return self._repeated(*value)
        self.chars.append(self._chars(op, value))
        state = frozenset([len(self.chars) - 1])
        return False, state, state

    def _repeated(self, low: int, high: Any, body: Any) -> Part:
        whole = _EMPTY
        endless = high is ops.MAXREPEAT
        if self._bounded_loops and not endless and high > _MANY and high != low:
            endless = True
        for _ in range(min(low, 2) - (1 if endless and low else 0)):
            whole = self._joined(whole, self._sequence(body))
        if endless:
            nullable, first, last = self._sequence(body)
            self._connect(last, first)
            return self._joined(whole, (nullable or low == 0, first, last))
        return self._joined(whole, self._optional(min(high - low, _MANY), body))

    def _optional(self, times: int, body: Any) -> Part:
        """Repeat a body at most this many times. Only trailing repetitions may be missing."""
        if times == 0:
            return _EMPTY
        _, first, last = self._sequence(body)
        _, next_first, next_last = self._optional(times - 1, body)
        self._connect(last, next_first)
        return True, first, last | next_last

    def _chars(self, op: Any, value: Any) -> frozenset[int]:
        if op is ops.ANY:
            return _ALPHABET
        if op is ops.LITERAL:
            return self._cased({value})
        if op is ops.NOT_LITERAL:
            return _ALPHABET - self._cased({value})
        if op is not ops.IN:
            raise ValueError(f"{op} is not known to be linear")
        chars: set[int] = set()
        for kind, item in value:
            if kind is ops.LITERAL:
                chars.add(item)
            elif kind is ops.RANGE:
                chars.update(char for char in _ALPHABET if item[0] <= char <= item[1])
            elif kind is ops.CATEGORY:
                chars.update(_category(item))
        cased = self._cased(chars)
        return _ALPHABET - cased if value[0][0] is ops.NEGATE else cased

    def _cased(self, chars: set[int]) -> frozenset[int]:
        if not self._ignore_case:
            return frozenset(chars)
        return frozenset(
            ord(item) for char in chars for item in (chr(char), chr(char).swapcase()[0])
        )

    def meets(self, *states: int) -> bool:
        """Return whether a single character can lead to all of these states."""
        return bool(frozenset.intersection(*(self.chars[state] for state in states)))


def _category(item: Any) -> Iterator[int]:
    negated = item in _NEGATED
    holds = _CATEGORIES[_NEGATED.get(item, item)]
    return (char for char in _ALPHABET if bool(holds(chr(char))) != negated)


def ways_to_backtrack(pattern: str | bytes, flags: int = 0, *, search: bool = False) -> str | None:
    """Describe how a pattern can backtrack without a bound; return None if it is linear."""
    loops = _Automaton(pattern, flags, bounded_loops=True, search=False)
    if loops.doubled:
        return "a repetition within a repetition reads the same text"
    if _is_exponential(loops):
        return "two ways through a repetition read the same text"
    if _is_square(_Automaton(pattern, flags, bounded_loops=False, search=search)):
        return "two repetitions after one another read the same text"
    return None


def _next_states(automaton: _Automaton) -> dict[int, list[int]]:
    nexts: dict[int, list[int]] = {state: [] for state in range(len(automaton.chars))}
    for before, after in automaton.edges:
        nexts[before].append(after)
    return nexts


def _reached(automaton: _Automaton, start: tuple[int, ...]) -> set[tuple[int, ...]]:
    nexts, visited, waiting = _next_states(automaton), set[tuple[int, ...]](), [start]
    while waiting:
        for after in product(*(nexts[state] for state in waiting.pop())):
            if after not in visited and automaton.meets(*after):
                visited.add(after)
                waiting.append(after)
    return visited


def _loops(automaton: _Automaton) -> list[int]:
    states = range(len(automaton.chars))
    return [state for state in states if (state,) in _reached(automaton, (state,))]


def _is_exponential(automaton: _Automaton) -> bool:
    for state in _loops(automaton):
        for pair in _reached(automaton, (state, state)):
            if pair[0] != pair[1] and (state, state) in _reached(automaton, pair):
                return True
    return False


def _is_square(automaton: _Automaton) -> bool:
    loops = _loops(automaton)
    return any(
        (first, second, second) in _reached(automaton, (first, first, second))
        for first, second in product(loops, loops)
        if first != second
    )
