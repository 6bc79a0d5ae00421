"""`-o jsonpath=TEMPLATE`, as kubectl takes it: text, expressions in braces, and `{range …}…{end}`.

An expression is a path from the answer that `-o json` prints, such as `{.nodes[*].node}` or
`{[0].name}`; inside a range it is a path from the element, and `$` is the whole answer again.
`{"\\n"}` is text. Values are separated by blanks; lists and objects are JSON. A path that matches
nothing prints nothing. kubectl's `.items` of an answer that is a list is the list.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput

_PLACE = "-o jsonpath"
_HELP = "write a template such as '{[*].name}' or '{range .nodes[*]}{.node}{\"\\n\"}{end}'"
_QUOTED = r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'"
_TOKEN = re.compile(rf"\{{((?:{_QUOTED}|[^{{}}\"'])*)\}}|([^{{}}]+)")
_PATHS = 1000  # paths of one template that are kept parsed
_ESCAPED_NAME = re.compile(r"(\.)((?:[\w/-]|\\\.)*\\\.(?:[\w/-]|\\\.)*)")


class _Text(msgspec.Struct, frozen=True):
    """Text of the template."""

    text: str


class _Range(msgspec.Struct, frozen=True):
    """Parts that are printed for each value of a path."""

    path: str
    parts: tuple[_Text | _Path | _Range, ...]


class _Path(msgspec.Struct, frozen=True):
    """A path whose values are printed."""

    path: str


def rendered(template: str, data: Any, clean: Callable[[str], str] = str) -> str:
    """Return the text of a template for the answer of a command, with a newline at its end. clean:
    of each value that is printed. Raises BadInput."""
    try:
        parts = _parts(_tokens(template), inside=False)
        text = "".join(_text(part, data, data, clean) for part in parts)
    except RecursionError:
        raise BadInput(_PLACE, f"{template[:40]!r}… has too many steps", _HELP) from None
    return text if text.endswith("\n") or not text else f"{text}\n"


def _tokens(template: str) -> Iterator[tuple[str, str]]:
    """Yield (expression, "") and ("", text)."""
    end = 0
    for match in _TOKEN.finditer(template):
        if match.start() != end:
            break
        end = match.end()
        yield (match[1] or "").strip(), match[2] or ""
    if end != len(template):
        raise BadInput(_PLACE, f"{template[end : end + 40]!r} is not complete", _HELP)


def _parts(
    tokens: Iterator[tuple[str, str]], *, inside: bool
) -> tuple[_Text | _Path | _Range, ...]:
    parts: list[_Text | _Path | _Range] = []
    for expression, text in tokens:
        if text:
            parts.append(_Text(text))
        elif expression == "end":
            if not inside:
                raise BadInput(_PLACE, "{end} ends no range", _HELP)
            return tuple(parts)
        elif expression.startswith("range "):
            parts.append(
                _Range(expression.removeprefix("range ").strip(), _parts(tokens, inside=True))
            )
        elif re.fullmatch(_QUOTED, expression):
            parts.append(
                _Text(
                    codecs.decode(
                        expression[1:-1].encode("latin-1", "backslashreplace"), "unicode_escape"
                    )
                )
            )
        else:
            parts.append(_Path(expression))
    if inside:
        raise BadInput(_PLACE, "a range has no {end}", _HELP)
    return tuple(parts)


def _text(
    text_part: _Text | _Path | _Range, root: Any, element: Any, clean: Callable[[str], str]
) -> str:
    match text_part:
        case _Text(text=text):
            return text
        case _Path(path=path):
            return " ".join(clean(_printed(value)) for value in _values(path, root, element))
        case _Range(path=path, parts=parts):
            return "".join(
                _text(inner, root, value, clean)
                for value in _values(path, root, element)
                for inner in parts
            )


def _values(path: str, root: Any, element: Any) -> Sequence[Any]:
    """Return the values of a path. Raises BadInput for one that is none."""
    from jsonpath_ng.exceptions import JSONPathError

    start = root if path.startswith("$") else element
    try:
        return [match.value for match in _parsed(path, of_list=isinstance(start, list)).find(start)]
    except (JSONPathError, ValueError, TypeError) as error:
        problem = f"{path[:60]!r} is not a path ({' '.join(str(error).split())[:100]})"
        raise BadInput(_PLACE, problem, _HELP) from None


@lru_cache(maxsize=_PATHS)
def _parsed(path: str, *, of_list: bool) -> Any:
    """Return a path in the library's form: parsing one takes as long as finding it a hundred times.
    of_list: whether it starts at a list. Raises what the library raises."""
    from jsonpath_ng.ext.parser import parse

    way = path[1:] if path.startswith("$") else path.removeprefix("@")
    way = _ESCAPED_NAME.sub(lambda name: f"['{name[2].replace(chr(92), '')}']", way)
    if way and way[0] not in ".[":
        way = f".{way}"
    if of_list:
        way = re.sub(r"\A\.items\b", "", way)
    return parse("$" if way in ("", ".") else f"${way}")


def _printed(value: Any) -> str:
    if value is None:
        return ""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
