"""The one distinction that the error tree does not make: a Conflict that waiting does not mend."""

from __future__ import annotations

from chalicelib.providers.errors import Conflict


class PermanentConflict(Conflict):
    """The world is not the one that the operation was planned for: it ends, and the next pass decides anew."""

    @property
    def cls(self) -> str:
        """To everybody else a Conflict."""
        return Conflict.__name__
