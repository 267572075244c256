"""What every command does the same way: one-line errors on standard error, warnings without code, exit statuses."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator

from .errors import ViaSdError


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each warning once, as one line without its place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", RuntimeWarning)
        warnings.showwarning = lambda message, *_args, **_kwargs: print(f"warning: {message}", file=sys.stderr)
        yield


def run(command: Callable[[], int]) -> int:
    """Run a command; its exit status, or 1 for an error of this package, 130 for Ctrl-C, 141 for a closed pipe."""
    try:
        with plain_warnings():
            status = command()
            sys.stdout.flush()
            return status
    except (ViaSdError, ValueError, ImportError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # whoever read our output has left; keep Python from complaining about the flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
