"""The `payintent` command line for operators."""

import gc
import os
import sys
from typing import Any


def main() -> None:
    """Run the command. Rejections and usage errors are printed as one line on standard error."""
    # Imported modules are never freed, so collecting garbage now or at exit would waste time.
    gc.disable()
    from payintent.cli.commands import (
        ABORT,
        USAGE_ERROR,
        build,
        find_completion_words,
        find_group,
        print_usage_error,
    )
    from payintent.runtime.log import configure_standard_streams
    from payintent.runtime.waiting import tune_garbage_collector

    configure_standard_streams()
    completion_words = find_completion_words(os.environ)
    group = find_group(sys.argv[1:] if completion_words is None else completion_words)
    app = build(group, is_completing=completion_words is not None)
    tune_garbage_collector()
    gc.enable()
    try:
        status: Any = app(standalone_mode=False)
    except USAGE_ERROR as error:
        sys.exit(print_usage_error(error))
    except ABORT:
        sys.exit(1)
    try:
        print(end="", flush=True)
    except OSError as error:  # the reader of a pipe has ended, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
        if not isinstance(error, BrokenPipeError):
            print(f"payintent: the output is incomplete: {error.strerror}", file=sys.stderr)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)
