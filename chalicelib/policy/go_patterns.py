"""Go's regular expressions, in which upstream's users write the priorities' ConfigMap
and `syncMachineLabels`.

Python's `re` has another syntax, and a pattern such as `(a+)+$` could occupy a function until its
timeout. RE2 is the engine that Go's package was made after: the same syntax, and a search takes
time in proportion to pattern times text. It is imported when the first pattern is compiled, because
most clusters have none.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any

from chalicelib.model.errors import BadInput

MOST_CHARACTERS = 1000
_MEMORY = 1 << 18  # bytes for one pattern: its program and the states remembered while searching
_LONGEST_PROBLEM = 120  # characters: RE2 repeats the pattern in some messages
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)  # a quotation, or one escaped character


class Pattern:
    """A compiled pattern. size: instructions of its program; a search takes at most
    that many steps per byte."""

    __slots__ = ("_program", "size")

    def __init__(self, text: str) -> None:
        """Raises BadInput without a place for a pattern that Go refuses, or that is too large."""
        if len(text) > MOST_CHARACTERS:
            raise BadInput(
                "", f"a pattern of {len(text)} characters is too long", f"at most {MOST_CHARACTERS}"
            )
        if "C" in (escape[1] for escape in _ESCAPES.finditer(text)):
            raise BadInput("", r"invalid escape sequence: \C")  # RE2 has it, Go does not
        engine = importlib.import_module("re2")
        options = engine.Options()
        options.log_errors, options.max_mem, options.never_capture = False, _MEMORY, True
        try:
            self._program: Any = engine.compile(text, options)
        except UnicodeEncodeError:
            raise BadInput("", "it has half of a surrogate pair") from None
        except engine.error as error:
            problem: bytes = error.args[0]
            raise BadInput("", problem.decode(errors="replace")[:_LONGEST_PROBLEM]) from None
        self.size: int = self._program.programsize

    def found_in(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in the text."""
        return self._program.search(text.encode(errors="replace")) is not None


@lru_cache(maxsize=2048)  # more than a ConfigMap may have (policy/priority_configmap.MOST_RULES)
def pattern(text: str) -> Pattern:
    """A pattern in Go's syntax; raises BadInput without a place for one that Go
    refuses, or that is too large."""
    return Pattern(text)
