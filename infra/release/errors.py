"""The error of a refused release."""


class ReleaseRefused(Exception):
    """The release is not built; the message is one line with the remedy."""
