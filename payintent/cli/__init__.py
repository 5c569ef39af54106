"""The command line of the operator: `payintent`."""

import gc
import os
import sys
from typing import Any


def main() -> None:
    """Run the command; what is refused, and what was mistyped, is one line on standard error."""
    # What is imported stays, so looking for garbage in it, now and at the end, finds nothing.
    gc.disable()
    from payintent.cli.commands import (
        ABORTED,
        MISUSED,
        build,
        completed_words,
        find_group,
        print_misuse,
    )
    from payintent.runtime.log import write_any_text
    from payintent.runtime.waiting import collect_rarely

    write_any_text()
    completed = completed_words(os.environ)
    group = find_group(sys.argv[1:] if completed is None else completed)
    app = build(group, completing=completed is not None)
    collect_rarely()
    gc.enable()
    try:
        status: Any = app(standalone_mode=False)
    except MISUSED as error:
        sys.exit(print_misuse(error))
    except ABORTED:
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
