"""Collects what a reader of values or objects finds, with the place of each value and all mistakes."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

from chalicelib.command.importers.autoscaler_input import Argument, FileMount, Remark, Variable, VariableOrigin
from chalicelib.command.importers.draft import MOST_PROBLEMS, shortened
from chalicelib.command.importers.public_values import is_secret_name
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote, show_path

Path = tuple[str, ...]
MOST_ENTRIES = 1_000
_INDEX = re.compile(r"[0-9]{1,6}\Z")
_RENDER = "render it first: helm template"


class InputRows:
    """Arguments, variables, mounts and remarks of one reader. file: as the user wrote it. lines: path -> line."""

    def __init__(self, file: str, lines: Mapping[Path, int], root: Path = ()) -> None:
        self._file, self._lines, self._root = file, lines, root
        self.arguments: list[Argument] = []
        self.variables: list[Variable] = []
        self.mounts: list[FileMount] = []
        self.remarks: list[Remark] = []
        self._problems: list[BadInput] = []

    def place(self, path: Path) -> str:
        """Return `values.yaml:7` for the value at a path, or for the nearest parent that has a line."""
        full = (*self._root, *path)
        for depth in range(len(full), -1, -1):
            if line := self._lines.get(full[:depth]):
                return f"{self._file}:{line}"
        return self._file

    def word(self, path: Path) -> str:
        """Return a path as text, such as `autoDiscovery.clusterName`."""
        return shortened(show_path(tuple(int(part) if _INDEX.match(part) else part for part in (*self._root, *path))))

    def problem(self, path: Path, problem: str, remedy: str = "") -> None:
        """Add a mistake, for which the import is refused."""
        if len(self._problems) < MOST_PROBLEMS:
            place = ": ".join(filter(None, (self.place(path), self.word(path))))
            self._problems.append(BadInput(place, problem, remedy))

    def add(self, bad_input: BadInput) -> None:
        """Add a mistake that another reader has found."""
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(bad_input)

    def check(self) -> None:
        """Raise InputErrors if there is any mistake."""
        if self._problems:
            raise InputErrors(tuple(self._problems))

    def remark(self, path: Path, verdict: Verdict, text: str = "", to: str = "", *, word: str = "") -> None:
        """Add a row of the report for the value at a path."""
        self.remarks.append(Remark(self.place(path), word or self.word(path), verdict, text, to))

    def argument(self, path: Path, flag: str, value: str | None, *, word: str = "", read_as: str = "") -> None:
        """Add a flag that the value at a path stands for."""
        shown = f"{self.word(path)}: {value}" if value is not None else self.word(path)
        self.arguments.append(Argument(self.place(path), word or shown, flag, value, read_as))

    def variable(self, path: Path, name: str, value: str | None, origin: VariableOrigin, of: str, key: str) -> None:
        """Add a variable. The value of one with the name of a secret is not kept."""
        known = None if is_secret_name(name) else value
        self.variables.append(Variable(self.place(path), name, known, origin, of, key))

    def mount(self, path: Path, folder: str, of: str, *, audience: str = "") -> None:
        """Add a folder of the container with the files of a Secret, a ConfigMap or a projected token."""
        self.mounts.append(FileMount(self.place(path), folder, of, audience=audience))

    def text(self, path: Path, value: Any) -> str | None:
        """Return a scalar as the text of a flag, None for null. Objects, lists and templates are mistakes."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            self.problem(path, "is not a text, a number, true or false")
            return None
        text = str(value)
        if "{{" in text:
            self.problem(path, f"{quote(text)} is a template of Helm", _RENDER)
            return None
        return text

    def whole(self, path: Path, value: Any) -> int | None:
        """Return a whole number from 0, None with a mistake for anything else but null."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
            self.problem(path, f"{quote(str(value)[:99])} is not a whole number from 0")
            return None
        return value

    def boolean(self, path: Path, value: Any) -> bool | None:
        """Return true or false, None with a mistake for anything else but null."""
        if value is not None and not isinstance(value, bool):
            self.problem(path, "is not true or false")
            return None
        return value

    def entries(self, path: Path, value: Any) -> dict[str, Any]:
        """Return an object's entries, none for null; anything else is a mistake, and so are too many."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problem(path, "is not an object")
            return {}
        if len(value) > MOST_ENTRIES:
            self.problem(path, f"has more than {MOST_ENTRIES} entries")
            return {}
        return {str(key): each for key, each in value.items()}

    def items(self, path: Path, value: Any) -> list[Any]:
        """Return a list's items, none for null; anything else is a mistake, and so are too many."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(path, "is not a list")
            return []
        if len(value) > MOST_ENTRIES:
            self.problem(path, f"has more than {MOST_ENTRIES} items")
            return []
        return value


def unlisted(entries: Mapping[str, Any], known: Container[str]) -> list[str]:
    """Return the keys that are not known, in their order."""
    return [key for key in entries if key not in known]
