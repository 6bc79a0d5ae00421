"""Parses untrusted YAML at a cost bounded by the length of its text: depth, aliases
and numbers are limited.

libyaml's loader recurses as deep as the text does, and a stack overflow ends the whole process
without an exception. Values of aliases are shared while they are loaded, but not when they are
copied or written out: nine aliases of nine aliases are millions of values a few levels on, and
merge keys (`<<`) copy while they are loaded. A number in base 60 (`1:1:1`) costs the square of its
length. All of this is therefore counted from events first, which needs no stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from chalicelib.model.errors import BadInput

DEEPEST = 50
MOST_VALUES = 100_000  # with aliases expanded, plus one for every 64 characters of text
LONGEST_NUMBER = 400  # characters; a floating-point number in full has 309 digits
_CHARACTERS = 64
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NUMBER = re.compile(r"[-+]?[0-9._:]+\Z")


class Excess(yaml.MarkedYAMLError):
    """A document beyond a limit. problem: continues the words `it is …`; mark: the location."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def parsed(
    text: str, *, texts: bool = False, deepest: int = DEEPEST, most: int = MOST_VALUES
) -> Any:
    """Return the single document, None where there is none. texts: scalars stay text in every form.
    deepest, most: limits of levels, and of values with aliases expanded.

    Raises Excess beyond these, yaml.YAMLError for other invalid YAML, and what a scalar
    that resembles a number or a date, or an invalid key, may raise (ValueError,
    TypeError, OverflowError).
    """
    loader = _TEXTS if texts else _SAFE
    _check(yaml.parse(text, Loader=loader), deepest, most)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, in C where there is one


def documents(text: str, *, deepest: int = DEEPEST, most: int = MOST_VALUES) -> list[Any]:
    """Return all documents, with one limit for all of them together. Raises as parsed does."""
    _check(yaml.parse(text, Loader=_SAFE), deepest, most)
    return list(yaml.load_all(text, Loader=_SAFE))


def documents_with_nodes(
    text: str, *, deepest: int = DEEPEST, most: int = MOST_VALUES
) -> list[tuple[Any, yaml.Node]]:
    """Return all documents as documents does, each with its root node, whose marks tell the lines.
    Merge keys are resolved in the nodes, too. Raises as parsed does."""
    _check(yaml.parse(text, Loader=_SAFE), deepest, most)
    loader = _SAFE(text)
    pairs: list[tuple[Any, yaml.Node]] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            pairs.append((loader.construct_document(node), node))
    finally:
        loader.dispose()
    return pairs


def input_documents(
    read: Callable[[], str],
    place: str,
    *,
    deepest: int,
    most: int,
    remedy: str,
    longest: int | None = None,
) -> list[Any]:
    """All documents of a file that is neither JSON nor, maybe, YAML. Raises BadInput
    with the place and the line.

    read: the text, may raise ValueError. remedy: for a file beyond a limit. longest: characters of
    YAML's own words in the error, None for all of them.
    """
    try:
        return documents(read(), deepest=deepest, most=most)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        # TypeError: a list as a key
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if isinstance(error, Excess):
            raise BadInput(where, f"is {what}", remedy) from None
        raise BadInput(
            where, f"is neither JSON nor YAML ({what[:longest]})", "correct it there"
        ) from None


def _check(events: Iterator[Any], deepest: int, most: int) -> None:
    sizes: dict[str, int] = {}  # anchor -> number of its values
    begun: list[tuple[str | None, int]] = []  # open collections: anchor, values so far
    written = 0  # values of earlier documents, and of this one so far
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, 1))
            if len(begun) > deepest:
                raise Excess(f"nested deeper than {deepest} levels", event.start_mark)
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise Excess("an alias inside its own anchor, or before it", event.start_mark)
            anchor, size = None, sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, _size(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = begun.pop()
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        if begun:
            name, total = begun[-1]
            begun[-1] = (name, total + size)
            size += total
        else:
            written, size = written + size, 0
        if written + size > most:
            raise Excess(f"more than {most} values once aliases are written out", event.start_mark)


def _size(event: Any) -> int:
    """Return how many values a scalar counts as. Raises Excess for a number that is too long."""
    length = len(event.value)
    if length > LONGEST_NUMBER and (event.implicit[0] or event.tag) and _NUMBER.match(event.value):
        raise Excess(
            f"a number of {length} characters, which may have {LONGEST_NUMBER}", event.start_mark
        )
    return 1 + length // _CHARACTERS
