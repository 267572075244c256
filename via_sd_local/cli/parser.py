"""A parser of arguments whose errors are one line: what is wrong, and where the help is."""

from __future__ import annotations

import argparse
import difflib
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` without the usage before an error; an unknown option is met with the closest one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as inherited; an unknown argument is an error at once, of the subcommand where it stands."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].split("=")[0]
            close = difflib.get_close_matches(name, self._option_string_actions, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"{'there is no option' if name.startswith('-') else 'unexpected argument'} {name}{hint}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, after one line on standard error."""
        text = " ".join(message.removeprefix("argument ").split())
        self.exit(2, f"error: {text} (`{self.prog} --help` lists the options)\n")
