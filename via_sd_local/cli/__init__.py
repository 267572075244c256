"""The command line: `via-sd-local` and its subcommands."""
