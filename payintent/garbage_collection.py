"""Tuning of garbage collection for long-running processes."""

import gc

# Requests and logs leave few cycles; the default of 700 objects takes a tenth of the CPU.
_OBJECTS = 50_000


def collect_rarely() -> None:
    """Collect once per 50,000 new objects, and never scan the objects that exist now."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)
