"""Reads the documents of an input file with the line of every value, so that a report
can name `deploy.yaml:31`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import Excess, documents_with_nodes
from chalicelib.policy.diagnostics import show_path

Path = tuple[str, ...]
MAX_BYTES = 4 * 2**20
MOST_VALUES = 200_000  # with aliases expanded; a "billion laughs" document has more
DEEPEST = 100
DEFAULT_NAMESPACE = "kube-system"
_REMEDY = "give the objects that matter alone"


class Located(msgspec.Struct, frozen=True):
    """One document. file: of the input. content: as decoded. lines: path of keys and indices
    -> line, empty for JSON. blocks: paths of texts whose lines are lines of the file."""

    file: str
    content: Any
    lines: Mapping[Path, int] = {}
    blocks: frozenset[Path] = frozenset()

    def place(self, *path: str) -> str:
        """Return `file:line` of the value at a path, or of the nearest known value above it."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.file}:{line}"
        return self.file

    def moved(self, lines: int) -> Located:
        """Return the document this many lines further down in its file."""
        if not lines:
            return self
        own = {path: line + lines for path, line in self.lines.items()}
        return msgspec.structs.replace(self, lines=own)

    def places(self, *path: str) -> dict[Path, str]:
        """Return `file:line` by path, for all values below a path, without that path."""
        length = len(path)
        return {
            below[length:]: f"{self.file}:{line}"
            for below, line in self.lines.items()
            if below[:length] == path
        }

    def line_place(self, path: Path, number: int) -> str:
        """Return `file:line` of a line of the text at a path. number: from 1."""
        line = self.lines.get(path)
        if line is None:
            return self.place(*path)
        return f"{self.file}:{line + number - 1 if path in self.blocks else line}"


def located_documents(file: str, text: str) -> list[Located]:
    """Return all documents of a file, with lists, and objects with items, as one document per item.

    Raises BadInput for text that is neither JSON nor YAML, or beyond a limit.
    """
    documents: list[Located] = []
    try:
        for content, node in _read(file, text):
            _flatten(file, content, node, documents)
    except RecursionError:
        raise BadInput(file, f"is nested deeper than {DEEPEST} levels", _REMEDY) from None
    return documents


_BOUNDARY = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_MOST_PARTS = 1_000


def readable_documents(file: str, text: str) -> tuple[list[Located], list[BadInput]]:
    """Return the documents of a file that can be read, and the mistake of each other one. No
    documents for a file with a thousand or more of them."""
    documents: list[Located] = []
    mistakes: list[BadInput] = []
    starts = [0, *(match.start() for match in _BOUNDARY.finditer(text)), len(text)]
    if len(starts) > _MOST_PARTS:
        return [], []
    line = 0
    for begin, end in itertools.pairwise(starts):
        part = text[begin:end]
        own: list[Located] = []
        try:
            # aliases may not make more of a part than its length allows
            pairs = _yaml_documents(file, part, line, most=len(part) + _MOST_PARTS)
            for content, node in pairs:
                _flatten(file, content, node, own)
        except BadInput as error:
            mistakes.append(error)
        except RecursionError:
            mistakes.append(BadInput(f"{file}:{line + 1}", f"is nested deeper than {DEEPEST}", ""))
        documents += [document.moved(line) for document in own]
        line += part.count("\n")
    return documents, mistakes


def _read(file: str, text: str) -> list[tuple[Any, yaml.Node | None]]:
    try:
        content = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
        # from Python 3.12 on the decoder nests deeper than Python code can recurse
        size = _size(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # ValueError: a number of thousands of digits
        pass
    else:
        if size > MOST_VALUES:
            raise BadInput(file, f"holds more than {MOST_VALUES} values", _REMEDY)
        return [(content, None)]
    return _yaml_documents(file, text, 0, most=MOST_VALUES)


def _yaml_documents(
    file: str, text: str, lines_before: int, *, most: int
) -> list[tuple[Any, yaml.Node | None]]:
    try:
        return [*documents_with_nodes(text, deepest=DEEPEST, most=most)]
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        # TypeError: a list as a key
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{lines_before + mark.line + 1}" if mark else file
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if isinstance(error, Excess):
            raise BadInput(where, f"is {what}", _REMEDY) from None
        raise BadInput(
            where, f"is neither JSON nor YAML ({what[:200]})", "correct it there"
        ) from None


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _flatten(file: str, content: Any, node: yaml.Node | None, documents: list[Located]) -> None:
    """Add a document, or the items of a list. Items of a `…List` may take their kind from it."""
    items, kind = content, ""
    if isinstance(content, Mapping) and isinstance(content.get("items"), list):
        items, kind = content["items"], kind_of(content)
        entries = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for key, value in reversed(entries) if key.value == "items"), None)
    if isinstance(items, list):
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [None] * len(items)
        for item, item_node in zip(items, nodes, strict=True):
            if kind.endswith("List") and isinstance(item, Mapping) and not kind_of(item):
                item = {**item, "kind": kind.removesuffix("List")}  # noqa: PLW2901
            _flatten(file, item, item_node, documents)
    elif content is not None:
        lines, blocks = noted_lines(node)
        documents.append(Located(file, content, lines, blocks))


def noted_lines(node: yaml.Node | None) -> tuple[dict[Path, int], frozenset[Path]]:
    """Return the line of each value of a document, from 1, and the paths of blocks of text. None:
    of JSON, whose lines are not known."""
    lines: dict[Path, int] = {}
    blocks: set[Path] = set()
    if node is not None:
        _note_lines(node, (), lines, blocks)
    return lines, frozenset(blocks)


def _note_lines(node: yaml.Node, path: Path, lines: dict[Path, int], blocks: set[Path]) -> None:
    # its text begins in the next line
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    if block:
        blocks.add(path)
    lines[path] = node.start_mark.line + (2 if block else 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = (*path, str(key.value))
                _note_lines(value, below, lines, blocks)
                if not isinstance(value, yaml.ScalarNode):
                    lines[below] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            _note_lines(value, (*path, str(at)), lines, blocks)


_INDEX = re.compile(r"[0-9]{1,6}\Z")
_MOST_SHOWN = 20  # parts of a path


def shown_path(path: Path) -> str:
    """Return a path as text, such as `spec.sources[1].helm`."""
    return show_path(
        tuple(int(part) if _INDEX.match(part) else part for part in path[:_MOST_SHOWN])
    )


# -- parts of objects, whose types nothing has checked ---------------------------------------------


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a scalar as text: a manifest may have numbers without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def kind_of(document: Mapping[str, Any]) -> str:
    """Return the kind, empty where there is none."""
    return text_of(document.get("kind"))


def name_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return (namespace, name); the namespace is that of Cluster Autoscaler's own
    manifests where none is written."""
    metadata = mapping(document.get("metadata"))
    return text_of(metadata.get("namespace")) or DEFAULT_NAMESPACE, text_of(metadata.get("name"))


def api_group_of(document: Mapping[str, Any]) -> str:
    """Return the API group of an object, empty for the core group."""
    version = document.get("apiVersion")
    return version.partition("/")[0] if isinstance(version, str) and "/" in version else ""
