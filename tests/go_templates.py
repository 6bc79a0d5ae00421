"""The part of Go's templates, with Helm's functions, that the chart uses: no package
index has `helm` itself.

An action that is not implemented is an error, so that a chart that is
rendered here uses nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|:=|[()|]|[^\s()|]+)')


class NotRendered(Exception):
    """The template is not valid, or needs a value that is not given."""


class TemplateNode(msgspec.Struct):
    """Text, a value to print, a variable, or a block with its branches. head: of a block,
    its keyword and condition."""

    kind: str
    head: str = ""
    body: list[TemplateNode] = []
    otherwise: list[TemplateNode] = []


class ChartFiles(msgspec.Struct, frozen=True):
    """`.Files` of a chart."""

    contents: Mapping[str, str]

    def get(self, name: str) -> str:
        """Return a file; empty where there is none, as in Helm."""
        return self.contents.get(name, "")


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise NotRendered(message)
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": lambda part, text: part in text,
    "eq": lambda one, other: one == other,
    "first": lambda values: values[0],
    "not": lambda value: not value,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "printf": lambda form, *values: form % values,
    "quote": lambda value: msgspec.json.encode(str(value)).decode(),
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "rest": lambda values: values[1:],
    "splitList": lambda separator, text: text.split(separator),
}


def _tokens(template: str) -> Iterator[TemplateNode]:
    """Text and actions in order; `{{-` and `-}}` take the blanks beside them away."""
    at, trimmed = 0, False
    for match in _ACTION.finditer(template):
        left, action, right = match.groups()
        text = template[at : match.start()]
        text = text.lstrip() if trimmed else text
        yield TemplateNode("text", text.rstrip() if left else text)
        yield TemplateNode("action", _COMMENT.sub("", action).strip())
        at, trimmed = match.end(), bool(right)
    yield TemplateNode("text", template[at:].lstrip() if trimmed else template[at:])


def _parsed(tokens: Iterator[TemplateNode], *, inside: bool) -> tuple[list[TemplateNode], str]:
    """The nodes up to the end of the block, and the action that ended it."""
    nodes: list[TemplateNode] = []
    for token in tokens:
        word = token.head.partition(" ")[0]
        if token.kind == "text" or not token.head:
            nodes.append(token)
        elif word in {"if", "range"}:
            nodes.append(_block(token.head, tokens))
        elif word in {"end", "else"}:
            if not inside:
                raise NotRendered(f"{{{{ {token.head} }}}} ends nothing")
            return nodes, token.head
        else:
            nodes.append(token)
    if inside:
        raise NotRendered("a block has no end")
    return nodes, ""


def _block(head: str, tokens: Iterator[TemplateNode]) -> TemplateNode:
    body, end = _parsed(tokens, inside=True)
    made = TemplateNode("block", head, body)
    if end.startswith("else if"):
        made.otherwise = [_block(end.removeprefix("else "), tokens)]
    elif end == "else":
        made.otherwise, _ = _parsed(tokens, inside=True)
    return made


class _Scope:
    """What names mean: the values, the files, and variables."""

    def __init__(
        self, values: Mapping[str, Any], files: ChartFiles, variables: Mapping[str, Any]
    ) -> None:
        self._values, self._files = values, files
        self._root: dict[str, Any] = {"Values": values, "Files": files}
        self.variables = dict(variables)

    def inner(self) -> _Scope:
        """A scope that sees this one's variables."""
        return _Scope(self._values, self._files, self.variables)

    def value(self, expression: str) -> Any:
        """The value of a pipeline: each result is the last argument of the
        function behind the bar."""
        words = _WORD.findall(expression)
        result, rest = self._pipeline(words)
        if rest:
            raise NotRendered(f"{expression}: {rest[0]}")
        return result

    def _pipeline(self, words: list[str]) -> tuple[Any, list[str]]:
        result, words = self._call(words, [])
        while words and words[0] == "|":
            result, words = self._call(words[1:], [result])
        return result, words

    def _call(self, words: list[str], piped: list[Any]) -> tuple[Any, list[str]]:
        """A function with its arguments, or a single operand."""
        name, arguments = words[0], []
        function = FUNCTIONS.get(name)
        if name.endswith(".Files.Get"):
            function = self._files.get
        if function is None:
            value, words = self._operand(words)
            return value, words
        words = words[1:]
        while words and words[0] not in {")", "|"}:
            value, words = self._operand(words)
            arguments.append(value)
        return function(*arguments, *piped), words

    def _operand(self, words: list[str]) -> tuple[Any, list[str]]:
        value: Any
        word, words = words[0], words[1:]
        if word == "(":
            value, words = self._pipeline(words)
            if words[:1] != [")"]:
                raise NotRendered("a bracket is not closed")
            return value, words[1:]
        if word.startswith('"'):
            return msgspec.json.decode(word), words
        start, *path = word.split(".")
        value = self._root if start in {"", "$"} else self.variables.get(start)
        if start not in {"", "$"} and start not in self.variables:
            raise NotRendered(f"{word} is neither a variable nor a function that is known here")
        for name in path:
            value = value[name]
        return value, words


def _written(nodes: list[TemplateNode], scope: _Scope) -> Iterator[str]:
    for node in nodes:
        if node.kind == "text":
            yield node.head
        elif node.kind == "block":
            yield from _branch(node, scope)
        elif variable := re.fullmatch(r"(\$\w+) := (.*)", node.head, re.DOTALL):
            scope.variables[variable[1]] = scope.value(variable[2])
        elif node.head:
            yield str(scope.value(node.head))


def _branch(node: TemplateNode, scope: _Scope) -> Iterator[str]:
    keyword, _, condition = node.head.partition(" ")
    if keyword == "if":
        yield from _written(node.body if scope.value(condition) else node.otherwise, scope.inner())
        return
    variable, _, values = condition.partition(" := ")
    for value in scope.value(values):
        inner = scope.inner()
        inner.variables[variable] = value
        yield from _written(node.body, inner)


def rendered(template: str, values: Mapping[str, Any], files: ChartFiles) -> str:
    """Return the text that Helm would make. Raises NotRendered."""
    nodes, _ = _parsed(_tokens(template), inside=False)
    return "".join(_written(nodes, _Scope(values, files, {})))
