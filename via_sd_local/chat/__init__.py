"""A conversation in the terminal: `python -m via_sd_local.chat`."""
