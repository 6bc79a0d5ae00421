"""Reads YAML as text with locations: every scalar stays as written, every node has its line.

yaml.safe_load is not used: it reads `off` as a boolean, `12:30` as seconds and `012` as
octal, keeps the last of two equal keys, and discards locations. Here the schema alone
decides what a value means.
Nodes are built from events rather than composed by PyYAML, so that depth, size and aliases are
bounded while reading, before any recursion.
Refused: tags, several documents, keys that are not text, an alias inside its own anchor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Mapping, Node, Scalar, Sequence

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
# with aliases expanded: a policy has some hundreds; a "billion laughs" document has more
MAX_NODES = 20_000
_CHARACTERS = 64  # characters of text that count as one more value

# without libyaml: the same events, slower
_LOADER: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read(text: str, *, place: str) -> Node:
    """Return the single document in the text; raises BadInput with
    `place:line` for any other text."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadInput(
            place, f"character {error.start + 1} is half a surrogate pair", "save the file as UTF-8"
        ) from None
    if size > MAX_BYTES:
        raise BadInput(
            place, f"{size} bytes is too large for a policy", f"keep it under {MAX_BYTES} bytes"
        )
    return _Composer(text, place).document()


class _Composer:
    """Builds nodes from events, recursing no deeper than MAX_DEPTH."""

    def __init__(self, text: str, place: str) -> None:
        self.place, self.lines = place, len(text.splitlines()) or 1
        self.anchors: dict[str, Node | None] = {}  # None: started but not finished
        # yaml's stubs lack event kinds
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> Node:
        """Return the root node of the only document."""
        self.next()  # stream start
        if isinstance(self.next(), yaml.StreamEndEvent):
            raise BadInput(
                self.place,
                "the document is empty",
                "start with apiVersion: outscaler.dev/v1 and kind: Cluster",
            )
        root = self.node(self.next(), depth=1)
        self.next()  # document end
        after = self.next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.bad(
                after,
                "a second document begins here",
                "keep one cluster per file and take the --- out",
            )
        return root

    def node(self, event: Any, depth: int) -> Node:
        """Return the node that begins with this event, with its aliases counted as expanded."""
        if isinstance(event, yaml.AliasEvent):
            node = self.alias(event)
        else:
            if depth > MAX_DEPTH:
                raise self.bad(
                    event,
                    f"nested deeper than {MAX_DEPTH} levels",
                    "a policy needs no more than six",
                )
            self.refuse_tag(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = None
            node = self.build(event, depth)
            if event.anchor is not None:
                self.anchors[event.anchor] = node
        if node.size > MAX_NODES:
            raise self.bad(
                event,
                f"more than {MAX_NODES} values once aliases are written out",
                "use fewer aliases",
            )
        return node

    def build(self, event: Any, depth: int) -> Node:
        """Return a scalar, or a collection with all its nodes."""
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(
                event.value, not event.style, line, column, 1 + len(event.value) // _CHARACTERS
            )
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := self.next(), yaml.SequenceEndEvent):
                items.append(self.node(item, depth + 1))
            return Sequence(tuple(items), line, column, 1 + sum(item.size for item in items))
        entries: list[tuple[Scalar, Node]] = []
        while not isinstance(key_event := self.next(), yaml.MappingEndEvent):
            key = self.node(key_event, depth + 1)
            if not isinstance(key, Scalar):
                raise self.bad(
                    key_event,
                    "a list or a mapping is used as a key",
                    "write a name before the colon",
                )
            entries.append((key, self.node(self.next(), depth + 1)))
        return Mapping(
            tuple(entries), line, column, 1 + sum(key.size + value.size for key, value in entries)
        )

    def alias(self, event: Any) -> Node:
        """Return the node that an alias refers to."""
        if event.anchor not in self.anchors:
            raise self.bad(
                event,
                f"the alias *{event.anchor} has no anchor before it",
                f"write &{event.anchor} first",
            )
        node = self.anchors[event.anchor]
        if node is None:
            raise self.bad(
                event, f"the alias *{event.anchor} is inside its own anchor", "write the values out"
            )
        return node

    def refuse_tag(self, event: Any) -> None:
        """Refuse `!!int`, `!secret` and other tags, which no reader here supports."""
        if getattr(event, "tag", None) not in {None, "!", "tag:yaml.org,2002:str"}:
            raise self.bad(
                event, "tags are not used in a policy", "take the word that begins with ! out"
            )

    def next(self) -> Any:
        """Return the next event; errors of YAML itself become BadInput."""
        try:
            return next(self.events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            # the end of the text is reported one line further
            line = min(mark.line + 1, self.lines) if mark else 0
            where = f"{self.place}:{line}" if mark else self.place
            context = f" {error.context}" if error.context else ""
            column = f", column {mark.column + 1}" if mark and mark.line < self.lines else ""
            begun = error.context_mark.line + 1 if error.context_mark else 0
            unclosed = 0 < begun < line
            remedy = (
                f"what is not closed begins in line {begun}"
                if unclosed
                else "check the preceding line too"
            )
            raise BadInput(where, f"not YAML{column}: {error.problem}{context}", remedy) from None
        except yaml.YAMLError as error:
            code = getattr(error, "character", None)
            character = f"character #x{code:04x}" if isinstance(code, int) else "a character"
            raise BadInput(
                self.place, f"{character} is not allowed in YAML", "save the file as UTF-8 text"
            ) from None

    def bad(self, event: Any, problem: str, remedy: str) -> BadInput:
        """Return a BadInput at the event's line."""
        return BadInput(f"{self.place}:{event.start_mark.line + 1}", problem, remedy)
