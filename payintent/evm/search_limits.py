"""Fit log searches to an endpoint's limits, which are learned from the searches that it refuses."""

import re
from dataclasses import dataclass

from payintent.evm.rpc import RpcErrorResponse

SPAN_FIRST = 2_000  # blocks
SPAN_MAX = 10_000
SPAN_GROWTH_DIVISOR = 8  # each success adds an eighth
RECIPIENTS_MAX = 500  # nodes accept 1,000 topics by default
SEARCHES_UNTIL_MORE_RECIPIENTS = 32  # the limit on topics is usually fixed

# geth: "exceed max addresses or topics per search position"; erigon: "query exceeds the maximum of
# 1000 addresses or topics per search position".
_TOPICS_TEXT = re.compile(r"topic|address", re.IGNORECASE)


@dataclass(slots=True)
class SearchLimits:
    """The maximum numbers of blocks and recipients in the next search at an endpoint."""

    span: int = SPAN_FIRST
    recipients: int = RECIPIENTS_MAX
    _searches: int = 0  # successful searches since `recipients` last changed

    def widen(self, blocks: int, recipients: int = 0) -> None:
        """Widen the limits after a successful search that was as wide as the limits."""
        if blocks >= self.span:
            growth = max(1, self.span // SPAN_GROWTH_DIVISOR)
            self.span = min(SPAN_MAX, self.span + growth)
        if recipients >= self.recipients:
            self._searches += 1
        if self._searches >= SEARCHES_UNTIL_MORE_RECIPIENTS:
            self.recipients, self._searches = min(RECIPIENTS_MAX, 2 * self.recipients), 0

    def narrow_span(self, blocks: int) -> None:
        """Halve the span after a refused search, unless the search was wider than the span."""
        if blocks <= self.span:
            self.span = max(1, blocks // 2)

    def narrow_recipients(self, recipients: int) -> None:
        self.recipients, self._searches = max(1, min(self.recipients, recipients) // 2), 0


def concerns_recipients(refusal: RpcErrorResponse, blocks: int, recipients: int) -> bool:
    """Return whether the next search should have fewer recipients instead of fewer blocks.

    Providers word their refusals differently. After an unrecognised refusal, the number of blocks
    is reduced first.
    """
    return recipients > 1 and (blocks == 1 or _TOPICS_TEXT.search(refusal.message) is not None)
