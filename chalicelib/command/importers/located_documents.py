"""Reads the documents of a manifest with the line of every value, so that a report can name `deploy.yaml:31`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from chalicelib.command.importers.input_files import DEEPEST, MOST_VALUES, parse_json
from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import Excess, documents_with_nodes

Path = tuple[str, ...]
_REMEDY = "give the objects that matter alone"


class Located(msgspec.Struct, frozen=True):
    """One document.

    file: of the input. content: as decoded. lines: path of keys and indices in the file -> line, empty for JSON.
    root: path of this document in the file.
    """

    file: str
    content: Any
    lines: Mapping[Path, int] = {}
    root: Path = ()

    def place(self, *path: str) -> str:
        """Return `file:line` of the value at a path, or of the nearest known value above it."""
        for length in range(len(path), -1, -1):
            line = self.lines.get((*self.root, *path[:length]))
            if line is not None:
                return f"{self.file}:{line}"
        return self.file

    def own_lines(self) -> Mapping[Path, int]:
        """Return the lines of this document's values, by their path in it."""
        depth = len(self.root)
        return {path[depth:]: line for path, line in self.lines.items() if path[:depth] == self.root}


def located_documents(file: str, text: str) -> list[Located]:
    """Return all documents of a file, with lists and objects of kind List as one document per item.

    Raises BadInput for text that is neither JSON nor YAML, or beyond a limit.
    """
    found: list[Located] = []
    try:
        for content, node in _read(file, text):
            lines: dict[Path, int] = {}
            if node is not None:
                _note(node, (), lines)
            _flatten(file, content, lines, (), found)
    except RecursionError:
        raise BadInput(file, f"is nested deeper than {DEEPEST} levels", _REMEDY) from None
    return found


def _read(file: str, text: str) -> list[tuple[Any, yaml.Node | None]]:
    if (decoded := parse_json(file, text)) is not None:
        return [(decoded, None)]
    try:
        return [*documents_with_nodes(text, deepest=DEEPEST, most=MOST_VALUES)]
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if isinstance(error, Excess):
            raise BadInput(where, f"is {what}", _REMEDY) from None
        raise BadInput(where, f"is neither JSON nor YAML ({what[:200]})", "correct it there") from None


def _note(node: yaml.Node, path: Path, lines: dict[Path, int]) -> None:
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")  # its text begins in the next line
    lines[path] = node.start_mark.line + (2 if block else 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = (*path, str(key.value))
                _note(value, below, lines)
                if not isinstance(value, yaml.ScalarNode):
                    lines[below] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            _note(value, (*path, str(at)), lines)


def _flatten(file: str, content: Any, lines: Mapping[Path, int], path: Path, found: list[Located]) -> None:
    items, below = content, path
    if isinstance(content, Mapping) and isinstance(content.get("items"), list):
        items, below = content["items"], (*path, "items")
    if isinstance(items, list):
        for at, each in enumerate(items):
            _flatten(file, each, lines, (*below, str(at)), found)
    elif content is not None:
        found.append(Located(file, content, _under(lines, path)))


def _under(lines: Mapping[Path, int], path: Path) -> Mapping[Path, int]:
    if not path:
        return lines
    return {each[len(path) :]: line for each, line in lines.items() if each[: len(path)] == path}
