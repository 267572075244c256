"""What this package raises besides ValueError (bad arguments) and ImportError (a wrong llama.cpp library)."""


class ViaSdError(Exception):
    """Base of this package's errors; the text is one line that a user can act on."""


class ModelError(ViaSdError):
    """A model file that cannot be found, loaded, or used in the role that it was given."""


class NativeError(ViaSdError):
    """llama.cpp refused or failed; the text carries its own message."""
