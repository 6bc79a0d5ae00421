"""The nodes of a document, and its mistakes: collected by path and reported at once,
in the order of the text.

Readers and checks use paths only; Diagnostics finds the line of a path in the text. A path that is
not in the text (a missing value) is reported at the line of the nearest existing parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from chalicelib.model.errors import BadInput, InputErrors

Path = tuple[str | int, ...]

_LONGEST = 60
_NULL = frozenset({"", "~", "null", "Null", "NULL"})


class Scalar(msgspec.Struct, frozen=True):
    """Text as written. plain: without quotes. size: 1, and more for a long text,
    because aliases repeat it, too."""

    text: str
    plain: bool
    line: int
    column: int
    size: int = 1

    @property
    def is_null(self) -> bool:
        """Return whether nothing is written, or YAML's null."""
        return self.plain and self.text in _NULL


class Sequence(msgspec.Struct, frozen=True):
    """A list. size: number of its nodes with aliases expanded."""

    items: tuple[Node, ...]
    line: int
    column: int
    size: int


class Mapping(msgspec.Struct, frozen=True):
    """Keys and values in the order of the text, including duplicate keys."""

    entries: tuple[tuple[Scalar, Node], ...]
    line: int
    column: int
    size: int


Node = Scalar | Sequence | Mapping


def show_path(path: Path) -> str:
    """Format ("spec", "nodeGroups", 1, "max") as `spec.nodeGroups[1].max`; other keys
    are quoted: `labels["a/b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{quote(part)}]"
    return text


def quote(text: str) -> str:
    """Format user text for a message: on one line, quoted, truncated."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably intended, or an empty text.
    Case and dashes are ignored."""
    import difflib  # only for mistakes: functions that read no document start without it

    folded = {name.replace("-", "").lower(): name for name in known}
    near = difflib.get_close_matches(
        word.replace("-", "").replace("_", "").lower(), folded, n=1, cutoff=0.75
    )
    return folded[near[0]] if near else ""


class Diagnostics:
    """Problems and warnings about one document. place: the file's name as the user wrote it."""

    def __init__(self, place: str, root_node: Node | None = None) -> None:
        self.place = place
        self._lines: dict[Path, int] = {}
        self._problems: list[tuple[int, BadInput]] = []
        self._warnings: list[tuple[int, str]] = []
        self._reported: list[Path] = []
        if root_node is not None:
            self._index(root_node, ())

    def problem(self, path: Path, problem: str, remedy: str = "", *, line: int = 0) -> None:
        """Add a problem, for which the document is refused."""
        line = line or self.line(path)
        self._reported.append(path)
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
        """Return whether there is a problem at or below the path, so that a rule about it would
        only repeat the problem."""
        return any(reported[: len(path)] == path for reported in self._reported)

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings in the order of the text."""
        return tuple(text for _, text in sorted(self._warnings, key=lambda entry: entry[0]))

    def check(self, further: tuple[BadInput, ...] = ()) -> None:
        """Raise InputErrors if there is any problem. further: problems found by
        other code, which come last."""
        if self._problems or further:
            in_order = tuple(
                problem for _, problem in sorted(self._problems, key=lambda entry: entry[0])
            )
            raise InputErrors(in_order + further)

    def _where(self, path: Path, line: int) -> str:
        where = f"{self.place}:{line}" if self._lines else self.place
        return f"{where}: {show_path(path)}" if path else where

    def _index(self, node: Node, path: Path) -> None:
        """Index lines by path; duplicate keys are reported here, because a
        mapping would drop one of them."""
        self._lines.setdefault(path, node.line)
        if isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self._index(item, (*path, index))
        elif isinstance(node, Mapping):
            for key, value in node.entries:
                below = (*path, key.text)
                first = self._lines.get(below)
                if first is not None:
                    self.problem(
                        below,
                        f"is already given in line {first}",
                        "keep one of the two",
                        line=key.line,
                    )
                    continue
                self._lines[below] = key.line
                self._index(value, below)
