"""Sorts the content of files by kind: add-on settings, HorizontalNodeAutoscaler objects, and irrelevant documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.command.importers.cce_addon import KEYS
from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import input_documents

MAX_BYTES = 4 * 2**20
MOST_VALUES = 200_000  # with aliases expanded; a "billion laughs" document has more
DEEPEST = 100
_ADDON = "autoscaler"


class InputFile(msgspec.Struct, frozen=True):
    """One relevant document. place: the file's name. cluster_id: of an add-on that names its cluster."""

    place: str
    content: Mapping[str, Any]
    cluster_id: str = ""


class Found(msgspec.Struct, frozen=True):
    """All documents, in the order of the files. others: ignored kinds, each once per file."""

    addons: tuple[InputFile, ...] = ()
    objects: tuple[InputFile, ...] = ()
    others: tuple[str, ...] = ()


def sort_out(texts: Mapping[str, str]) -> Found:
    """Sort place -> text, as JSON or as YAML with any number of documents, by the kind of its documents.

    Raises BadInput for a file that cannot be read as either, and for one without relevant documents.
    """
    addons: list[InputFile] = []
    objects: list[InputFile] = []
    others: dict[str, None] = {}
    for place, text in texts.items():
        before = len(addons) + len(objects)
        try:
            for each in (each for document in _documents(place, text) for each in _flat(document)):
                _put(each, place, addons, objects, others)
        except RecursionError:
            raise BadInput(
                place, f"is nested deeper than {DEEPEST} levels", "give the objects that matter alone"
            ) from None
        if len(addons) + len(objects) == before:
            raise BadInput(
                place,
                "holds no settings of the autoscaler add-on and no HorizontalNodeAutoscaler objects",
                "give Cluster Autoscaler's manifest, values or command line; or the answer of GET /api/v3/addons, its "
                "custom block, or the objects as kubectl shows them",
            )
    return Found(tuple(addons), tuple(objects), tuple(others))


def _put(each: Any, place: str, addons: list[InputFile], objects: list[InputFile], others: dict[str, None]) -> None:
    if not isinstance(each, Mapping):
        others[f"{place}: something that is not an object"] = None
        return
    for fits, take in _KINDS:
        if fits(each):
            take(each, place, addons, objects)
            return
    others[f"{place}: {_kind(each)[:60] or 'an object without a kind'}"] = None


# -- kinds -----------------------------------------------------------------------------------------------------------


def _kind(each: Mapping[str, Any]) -> str:
    """Return its kind as written; keys are case-insensitive, as in the vendor's own pages."""
    found = next((value for key, value in each.items() if isinstance(key, str) and key.lower() == "kind"), "")
    return found if isinstance(found, str) else ""


def _of_addon(each: Mapping[str, Any], place: str, addons: list[InputFile], objects: list[InputFile]) -> None:
    """Return an item of the add-on list; other add-ons are ignored."""
    del objects
    spec = _mapping(each.get("spec"))
    if spec.get("addonTemplateName") == _ADDON:
        cluster = spec.get("clusterID")
        addons.append(
            InputFile(
                place, _mapping(_mapping(spec.get("values")).get("custom")), cluster if isinstance(cluster, str) else ""
            )
        )


def _of_values(each: Mapping[str, Any], place: str, addons: list[InputFile], objects: list[InputFile]) -> None:
    del objects
    addons.append(InputFile(place, _mapping(_mapping(each.get("values", each)).get("custom"))))


def _bare(each: Mapping[str, Any], place: str, addons: list[InputFile], objects: list[InputFile]) -> None:
    del objects
    addons.append(InputFile(place, each))


def _of_object(each: Mapping[str, Any], place: str, addons: list[InputFile], objects: list[InputFile]) -> None:
    del addons
    objects.append(InputFile(place, each))


_KINDS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[..., None]], ...] = (
    (lambda each: _kind(each).lower() == "horizontalnodeautoscaler", _of_object),
    (lambda each: _kind(each).lower() == "addon", _of_addon),
    (lambda each: not _kind(each) and "addonTemplateName" in _mapping(each.get("spec")), _of_addon),
    (lambda each: not _kind(each) and "custom" in _mapping(each.get("values", each)), _of_values),
    (lambda each: not _kind(each) and not KEYS.isdisjoint(each), _bare),
)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- text ------------------------------------------------------------------------------------------------------------


def parse_json(place: str, text: str) -> Any:
    """Return the content of a JSON file, None for any other text. Raises BadInput beyond the limit of values."""
    try:
        found = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
        _count_all([found], place)  # from Python 3.12 on the decoder nests deeper than Python code can recurse
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: a number of thousands of digits
        return None
    return found


def _documents(place: str, text: str) -> Iterator[Any]:
    """Parse JSON, or otherwise YAML."""
    found = [parse_json(place, text)]
    if found[0] is None:
        found = input_documents(
            lambda: text, place, deepest=DEEPEST, most=MOST_VALUES, remedy="give the objects that matter alone"
        )
        _count_all(found, place)
    yield from (document for document in found if document is not None)


def _count_all(found: list[Any], place: str) -> None:
    left = [MOST_VALUES]
    for document in found:
        _count(document, left, place)


def _count(value: Any, left: list[int], place: str) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise BadInput(place, f"holds more than {MOST_VALUES} values", "give the objects that matter alone")
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            _count(each, left, place)


def _flat(document: Any) -> Iterator[Any]:
    """Flatten lists: any document with items is one, regardless of its kind (CCE's list of add-ons has kind Addon)."""
    if isinstance(document, list):
        for each in document:
            yield from _flat(each)
    elif isinstance(document, Mapping) and isinstance(document.get("items"), list):
        kind = _kind(document)
        for each in document["items"]:
            nameless = isinstance(each, Mapping) and kind.endswith("List") and not _kind(each)
            yield from _flat({**each, "kind": kind.removesuffix("List")} if nameless else each)
    else:
        yield document
