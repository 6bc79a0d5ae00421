"""Finds the files of a saved cluster, and reads them as pages of JSON.

A source is a folder of lists (JSON or YAML), the folder of `kubectl cluster-info dump`, one
such file, or standard input. YAML is read document by document: one that cannot be read is named
with its line, and the others count. A list that cannot be read is refused, because a plan without
its pods would take their nodes for empty.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.net.bounded_files import MOST_OBJECTS, content
from chalicelib.net.safe_yaml import DEEPEST, Excess, parsed

STDIN = Path("-")
_JSON = (".json", ".json.gz")
_YAML = (".yaml", ".yml", ".yaml.gz", ".yml.gz")
_MANIFESTS = frozenset({"manifest.json", "manifest.yaml", "manifest.yml"})
# what a dump has of each namespace, and a plan reads
_DUMPED = ("pods", "daemonsets", "replicasets", "replication-controllers")
_NODES, _PODS = "nodes", "pods"
_MOST_NAMESPACES = 20_000
_MOST_YAML = 2**26  # bytes of one file
_MOST_DOCUMENTS = 100_000  # of one file
_SPARE = 100_000  # values that aliases may add to a file, besides one for each of its characters
_AS_JSON = "save it as JSON, which may be larger: kubectl get … -o json"
_WHOLE_DUMP = "give the folder that this makes: kubectl cluster-info dump -A --output-directory=DIR"


class SavedFile(msgspec.Struct, frozen=True):
    """One file. name: in errors, `pods.json` or `shop/pods.json`."""

    path: Path
    name: str


class SavedFiles(msgspec.Struct, frozen=True):
    """The files of a source. namespaces: of a dump; None for other sources."""

    files: tuple[SavedFile, ...]
    namespaces: tuple[str, ...] | None = None


class Page(msgspec.Struct, frozen=True):
    """One document. place: `pods.json`, or `cluster.yaml:31`. single: one object among others, so
    that only it is lost if it is none of Kubernetes."""

    body: bytes
    place: str
    single: bool = False


class Unreadable(msgspec.Struct, frozen=True):
    """One object that is not YAML. kind: empty where its text names none. known: JSON with the
    names that its text has."""

    kind: str
    place: str
    detail: str
    known: bytes


# -- which files -----------------------------------------------------------------------------------


def saved_files(source: Path, manifest: Path, *, captured: bool) -> SavedFiles:
    """Return the files of a source, without the manifest: of a folder its JSON, or its YAML where
    it has no JSON. captured: whether `outscaler capture` made the folder. Raises BadInput for a
    source without files."""
    if source == STDIN:
        return SavedFiles((SavedFile(source, "stdin"),))
    if source.is_file():
        return SavedFiles((SavedFile(source, source.name),))
    if not source.is_dir():
        problem = "is not a directory" if source.exists() else "does not exist"
        remedy = "give the folder that holds nodes.json, pods.json …, or one file with all objects"
        raise BadInput(str(source), problem, remedy)
    entries = sorted(source.iterdir())
    files = [
        SavedFile(path, path.name)
        for path in entries
        if path.name.endswith((*_JSON, *_YAML))
        and path.is_file()
        and path.resolve() != manifest.resolve()
    ]
    lists = [file for file in files if file.name.endswith(_JSON) and file.name not in _MANIFESTS]
    if captured or lists:  # YAML beside lists in JSON is a policy, values or pods to add
        files = [file for file in files if file.name.endswith(_JSON)]
    namespaces: tuple[str, ...] | None = None
    if not captured and any(_stem(file.path) == _NODES for file in files):
        namespaces, dumped = _dumped(entries)
        files += dumped
    if not files:
        remedy = f"save the cluster into it: outscaler capture {source}"
        raise BadInput(str(source), "holds no *.json, *.json.gz or *.yaml", remedy)
    read = tuple(file for file in files if file.path.name not in _MANIFESTS)
    return SavedFiles(read, namespaces or None)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _dumped(entries: list[Path]) -> tuple[tuple[str, ...], list[SavedFile]]:
    """Return the namespaces of a dump and their lists. Folders without pods are none, and the
    folders of logs inside them are not read."""
    namespaces: list[str] = []
    files: list[SavedFile] = []
    for folder in entries:
        if not folder.is_dir() or folder.is_symlink():
            continue
        lists = [
            path
            for stem in _DUMPED
            for ending in (*_JSON, *_YAML)
            if (path := folder / f"{stem}{ending}").is_file()
        ]
        if any(_stem(path) == _PODS for path in lists):
            namespaces.append(folder.name)
            files += [SavedFile(path, f"{folder.name}/{path.name}") for path in lists]
        if len(namespaces) > _MOST_NAMESPACES:
            problem = f"has more than {_MOST_NAMESPACES} namespaces"
            raise BadInput(
                str(folder.parent), problem, "capture the cluster: outscaler capture DIR"
            )
    return tuple(namespaces), files


# -- what is in them -------------------------------------------------------------------------------


def pages(file: SavedFile) -> Iterator[Page | Unreadable]:
    """Return the documents of a file. Raises BadInput for a file that cannot be read, and for a
    list that is not YAML."""
    data = _loaded(file)
    if _is_yaml(file, data):
        yield from _yaml_pages(data, file.name)
    elif b"\n==== START logs for container" in data:
        raise BadInput(file.name, "is a dump with the logs of containers in it", _WHOLE_DUMP)
    else:
        yield Page(data, file.name)


def _is_yaml(file: SavedFile, data: bytes) -> bool:
    """Return whether a file is YAML: by its name, otherwise by its first character."""
    if file.name.endswith((*_JSON, *_YAML)):
        return file.name.endswith(_YAML)
    return data.lstrip()[:1] != b"{"


def loaded(path: Path, name: str, most: int = MOST_OBJECTS) -> bytes:
    """Return the bytes of a file. name: in errors. Raises BadInput."""
    try:
        return content(path, most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(name, f"is not a complete gzip file ({error})", "fetch it again") from None
    except OSError as error:
        raise BadInput(
            str(path), error.strerror or "cannot be read", "give a file that can be read"
        ) from None


def _loaded(file: SavedFile) -> bytes:
    if file.path != STDIN:
        most = _MOST_YAML if file.name.endswith(_YAML) else MOST_OBJECTS
        return loaded(file.path, file.name, most)
    data = sys.stdin.buffer.read(MOST_OBJECTS + 1)
    if len(data) > MOST_OBJECTS:
        raise BadInput(file.name, f"has more than {MOST_OBJECTS} bytes", "capture the cluster")
    return data


# -- YAML ------------------------------------------------------------------------------------------

_BOUNDARY = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_KIND = re.compile(r"^kind:[ \t]*[\"']?([A-Za-z]{1,100})[\"']?[ \t]*$", re.MULTILINE)
_ITEMS = re.compile(r"^items:", re.MULTILINE)
_VALUE = r"^ {2,4}%s:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9.:/-]{0,500})[\"']?[ \t]*$"
_METADATA, _SPEC = ("namespace", "name"), ("nodeName", "providerID")
_NAMES = {key: re.compile(_VALUE % key, re.MULTILINE) for key in (*_METADATA, *_SPEC)}
_MALFORMED: tuple[type[Exception], ...] = (yaml.YAMLError, TypeError, *MALFORMED)


def _yaml_pages(data: bytes, name: str) -> Iterator[Page | Unreadable]:
    if len(data) > _MOST_YAML:
        raise BadInput(name, f"has more than {_MOST_YAML} bytes", _AS_JSON)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{name}:{line}", "is not UTF-8 text", "save the file as UTF-8") from None
    values = _Values(len(text))
    for number, (line, document) in enumerate(_documents(text)):
        if number >= _MOST_DOCUMENTS:
            problem = f"has more than {_MOST_DOCUMENTS} documents"
            raise BadInput(f"{name}:{line}", problem, _AS_JSON)
        if values.left < _SPARE:
            problem = "has more values than its length allows, once aliases are written out"
            raise BadInput(f"{name}:{line}", problem, _AS_JSON)
        try:
            value = values.plain(parsed(document, most=values.left))
            if isinstance(value, list):
                value = {"kind": "List", "items": value}
            if isinstance(value, dict):
                body = msgspec.json.encode(value)
                yield Page(body, f"{name}:{line}", single="items" not in value)
            elif value is not None:
                yield Unreadable("", f"{name}:{line}", "is no Kubernetes object", b"{}")
        except _MALFORMED as error:
            yield _unreadable(document, name, line, error)


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Return the documents, each with the line of its first character. A line of three dashes
    begins one: inside a block of text it would be indented."""
    begin, line = 0, 1
    for boundary in _BOUNDARY.finditer(text):
        document = text[begin : boundary.start()]
        if document.strip() and not document.startswith("%"):  # a directive
            yield line, document
        line += document.count("\n")
        begin = boundary.start()
    if text[begin:].strip():
        yield line, text[begin:]


class _Values:
    """Makes values of YAML those of JSON, and counts them. left: how many a file may still have,
    once aliases are written out."""

    def __init__(self, length: int) -> None:
        self.left = _SPARE + 2 * length

    def plain(self, value: Any) -> Any:
        """Return a value with text as keys. Raises TypeError for another key."""
        self.left = max(self.left - 1, 1)
        if isinstance(value, dict):
            return {_key(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        return value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return msgspec.json.encode(key).decode()
    raise TypeError("a key is not text")


def _unreadable(text: str, name: str, first_line: int, error: Exception) -> Unreadable:
    """Return an object that is not YAML, as far as its text shows what it is. Raises BadInput for
    a list."""
    mark = getattr(error, "problem_mark", None)
    line = first_line + mark.line if mark else first_line
    what = getattr(error, "problem", None) or str(error).partition("\n")[0]
    if isinstance(error, RecursionError):
        what = f"nested deeper than {DEEPEST} levels"
    detail = f"is {what}" if isinstance(error, Excess) else f"is not YAML ({what[:200]})"
    match = _KIND.search(text)
    kind = match[1] if match else ""
    if kind.endswith("List") or _ITEMS.search(text):
        raise BadInput(f"{name}:{line}", detail, "correct it there; nothing was used")
    names = {key: match[1] for key, pattern in _NAMES.items() if (match := pattern.search(text))}
    metadata = {key: names[key] for key in _METADATA if key in names}
    spec = {key: names[key] for key in _SPEC if key in names}
    known = {"kind": kind, "metadata": metadata, "spec": spec}
    return Unreadable(kind, f"{name}:{line}", detail, msgspec.json.encode(known))
