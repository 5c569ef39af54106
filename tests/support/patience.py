"""How long a test waits for something that must happen before it calls it missing.

A condition that comes true costs no more for a larger number; a busy machine may need it.
"""

PATIENCE_S = 90.0
