"""How often a process that serves for long looks for reference cycles."""

import gc

# Requests and logs leave few cycles; collecting every 700 objects takes a tenth of the CPU.
_OBJECTS = 50_000


def collect_rarely() -> None:
    """Look for cycles once in 50,000 new objects, and never in what is loaded by now."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)
