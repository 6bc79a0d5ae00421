"""A distinction that the error tree does not make: a Conflict that a retry cannot resolve."""

from __future__ import annotations

from chalicelib.providers.errors import Conflict


class PermanentConflict(Conflict):
    """The state differs from the one that the operation was planned for. The operation ends, and the next pass makes a
    new decision."""

    @property
    def cls(self) -> str:
        """The class reported to callers: Conflict."""
        return Conflict.__name__
