"""The package's exceptions, besides ValueError (bad arguments) and ImportError (a wrong llama.cpp library)."""


class ViaSdError(Exception):
    """Base of this package's errors; the message is one line that a user can act on."""


class ModelError(ViaSdError):
    """A model file cannot be found, loaded, or used in its role (as a draft model, as a testbed's source, …)."""


class NativeError(ViaSdError):
    """llama.cpp refused or failed; the message carries its reason."""
