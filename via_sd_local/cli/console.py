"""What every command does the same way: one-line errors on standard error, warnings without code, exit statuses."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator

from ..errors import ViaSdError


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
        prepare_output()
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
        silence_output()
        return 141
    except OSError as error:
        print(f"error: {error.strerror or error}", file=sys.stderr)
        silence_output()
        return 1


def prepare_output() -> None:
    """Make standard output show what its encoding can, and the rest as "?"; OSError if it is closed."""
    if sys.stderr is None:  # print would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def silence_output() -> None:
    """Keep Python from complaining about the flush at exit, where whoever reads our output has left."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
