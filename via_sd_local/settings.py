"""`Settings` under the import path that the documentation has always given; its home is `via_sd_local.session`."""

from .session.settings import Settings

__all__ = ["Settings"]
