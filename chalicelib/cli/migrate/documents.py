"""Reads the documents of an input file with the line of every value, so that a report
can name `deploy.yaml:31`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import Excess, documents_with_nodes

Path = tuple[str, ...]
MAX_BYTES = 4 * 2**20
MOST_VALUES = 200_000  # with aliases expanded; a "billion laughs" document has more
DEEPEST = 100
DEFAULT_NAMESPACE = "kube-system"
_REMEDY = "give the objects that matter alone"


class Located(msgspec.Struct, frozen=True):
    """One document. file: of the input. content: as decoded. lines: path of keys and indices
    -> line, empty for JSON."""

    file: str
    content: Any
    lines: Mapping[Path, int] = {}

    def place(self, *path: str) -> str:
        """Return `file:line` of the value at a path, or of the nearest known value above it."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.file}:{line}"
        return self.file


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
    try:
        return [*documents_with_nodes(text, deepest=DEEPEST, most=MOST_VALUES)]
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        # TypeError: a list as a key
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
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
        lines: dict[Path, int] = {}
        if node is not None:
            _note_lines(node, (), lines)
        documents.append(Located(file, content, lines))


def _note_lines(node: yaml.Node, path: Path, lines: dict[Path, int]) -> None:
    # its text begins in the next line
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    lines[path] = node.start_mark.line + (2 if block else 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = (*path, str(key.value))
                _note_lines(value, below, lines)
                if not isinstance(value, yaml.ScalarNode):
                    lines[below] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            _note_lines(value, (*path, str(at)), lines)


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
