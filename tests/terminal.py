"""A stream that commands take for a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True
