"""Why a release is not made."""


class ReleaseRefused(Exception):
    """The release is not made; the message is one line that says what to do."""
