"""Collects all mistakes of a document by path and reports them at once, in the order of the document.

Readers and checks use paths only; this module finds the line of a path in the text. A path that is not in the text (a
missing value) is reported at the line of the nearest existing parent.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.yaml_document import Mapping, Node, Scalar, Sequence

Path = tuple[str | int, ...]

_WORD = re.compile(r"[A-Za-z0-9_-]+\Z")
_LONGEST = 60


def show_path(path: Path) -> str:
    """Format ("spec", "nodeGroups", 1, "max") as `spec.nodeGroups[1].max`; other keys are quoted: `labels["a/b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _WORD.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{quote(part)}]"
    return text


def quote(text: str) -> str:
    """Format user text for a message: on one line, quoted, truncated."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably intended, or an empty text. Case and dashes are ignored."""
    folded = {name.replace("-", "").lower(): name for name in known}
    near = difflib.get_close_matches(word.replace("-", "").replace("_", "").lower(), folded, n=1, cutoff=0.75)
    return folded[near[0]] if near else ""


class Diagnostics:
    """Problems and warnings about one document. place: the file's name as the user wrote it."""

    def __init__(self, place: str, root_node: Node | None = None) -> None:
        self.place = place
        self._lines: dict[Path, int] = {}
        self._problems: list[tuple[int, BadInput]] = []
        self._warnings: list[tuple[int, str]] = []
        self._told: list[Path] = []
        if root_node is not None:
            self._index(root_node, ())

    def problem(self, path: Path, problem: str, remedy: str = "", *, line: int = 0) -> None:
        """Add a problem, for which the document is refused."""
        line = line or self.line(path)
        self._told.append(path)
        self._problems.append((line, BadInput(self._where(path, line), problem, remedy)))

    def warn(self, path: Path, text: str) -> None:
        """Add a warning about a setting that is accepted but may not do what the author expects."""
        line = self.line(path)
        self._warnings.append((line, f"{self._where(path, line)}: {text}"))

    def line(self, path: Path) -> int:
        """Return the line of the path, or of the nearest parent in the text."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def has_problem_under(self, path: Path) -> bool:
        """Return whether there is a problem at or below the path, so that a rule about it would only repeat the
        problem."""
        return any(found[: len(path)] == path for found in self._told)

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings in the order of the text."""
        return tuple(text for _, text in sorted(self._warnings, key=lambda entry: entry[0]))

    def check(self, further: tuple[BadInput, ...] = ()) -> None:
        """Raise InputErrors if there is any problem. further: problems found by other code, which come last."""
        if self._problems or further:
            known = tuple(problem for _, problem in sorted(self._problems, key=lambda entry: entry[0]))
            raise InputErrors(known + further)

    def _where(self, path: Path, line: int) -> str:
        where = f"{self.place}:{line}" if self._lines else self.place
        return f"{where}: {show_path(path)}" if path else where

    def _index(self, node: Node, path: Path) -> None:
        """Index lines by path; duplicate keys are reported here, because a mapping would drop one of them."""
        self._lines.setdefault(path, node.line)
        if isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self._index(item, (*path, index))
        elif isinstance(node, Mapping):
            for key, value in node.entries:
                self._index_entry(key, value, path)

    def _index_entry(self, key: Scalar, value_node: Node, path: Path) -> None:
        below = (*path, key.text)
        first = self._lines.get(below)
        if first is not None:
            self.problem(below, f"is already given in line {first}", "keep one of the two", line=key.line)
            return
        self._lines[below] = key.line
        self._index(value_node, below)
