"""YAML of strangers: a kubeconfig of a secret, a ConfigMap that anybody in the cluster may have written.

libyaml's loader goes as deep as the text does, and ends the whole process where the stack ends: nobody can catch that.
And what aliases stand for is shared while it is loaded, but not when it is written out again: nine aliases of nine
aliases are millions of values a few levels on. So depth and size are counted from events first, which needs no stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

DEEPEST = 50
MOST_VALUES = 100_000       # once aliases are written out, with one more for every 64 characters of text
_CHARACTERS = 64
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def parsed(text: str, *, texts: bool = False) -> Any:
    """The document. texts: scalars stay text, whatever they look like. Raises yaml.YAMLError, also for one that is
    nested deeper than DEEPEST levels or larger than MOST_VALUES, and what a scalar that looks like a number or a date
    may raise (ValueError, OverflowError)."""
    loader = _TEXTS if texts else _SAFE
    _check(yaml.parse(text, Loader=loader))
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, in C where there is one


def _check(events: Iterator[Any]) -> None:
    sizes: dict[str, int] = {}                  # anchor -> values that it stands for
    begun: list[tuple[str | None, int]] = []    # open collections: anchor, values so far
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, 1))
            if len(begun) > DEEPEST:
                raise yaml.YAMLError(f"nested deeper than {DEEPEST} levels")
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise yaml.YAMLError("an alias stands inside its own anchor, or before it")
            anchor, size = None, sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1 + len(event.value) // _CHARACTERS
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
        if size > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES} values once aliases are written out")
