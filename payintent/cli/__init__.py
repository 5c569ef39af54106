"""The `payintent` command line for operators."""

import gc
import os
import sys
from typing import Any


def main() -> None:
    """Run the command. Rejections and usage errors are printed as one line on standard error."""
    # Imported modules are never freed, so collecting garbage now or at exit would be wasted time.
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
