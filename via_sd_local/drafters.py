"""The protocol of drafters under the import path that the documentation has always given.

Its home is `via_sd_local.tiers`.
"""

from .tiers.drafter import Draft, Drafter, Hints

__all__ = ["Draft", "Drafter", "Hints"]
