"""How every command runs: one-line errors on standard error, warnings without source lines, and exit statuses."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator

from ..errors import ViaSdError
from ..visible import unguarded, visible_terminals
from .wording import as_typed


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each warning once, as one line without file name and source."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", RuntimeWarning)
        warnings.showwarning = lambda message, *_args, **_kwargs: print(
            f"warning: {as_typed(str(message))}", file=sys.stderr
        )
        yield


def run(command: Callable[[], int]) -> int:
    """Run a command and return its exit status, or 1 after an error, 130 after Ctrl-C and 141 after a closed pipe.

    What it prints on a terminal is made visible.
    """
    with visible_terminals():
        return _run(command)


def _run(command: Callable[[], int]) -> int:
    try:
        prepare_output()
        with plain_warnings():
            status = command()
            sys.stdout.flush()
            return status
    except (ViaSdError, ValueError, ImportError) as error:
        print(f"error: {as_typed(' '.join(str(error).split()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        silence_output()
        return 141
    except OSError as error:
        with contextlib.suppress(OSError):  # the terminal may be what has gone
            print(f"error: {error.strerror or error}", file=sys.stderr)
        silence_output()
        return 1


def prepare_output() -> None:
    """Let standard output replace characters that its encoding lacks by "?"; raises OSError if it is closed."""
    if sys.stderr is None:  # print would write to standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if isinstance(stdout := unguarded(sys.stdout), io.TextIOWrapper):
        stdout.reconfigure(errors="replace")


def silence_output() -> None:
    """Keep Python from reporting the failed flush at exit after the reader of standard output has gone."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
