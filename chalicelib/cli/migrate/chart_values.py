"""Values of a Helm chart in layers, as Helm and the tools around it lay them over each other.

A later layer counts more. Each value keeps the place where it is written, so that the report names
it. Values of a Go template that a tool fills in per cluster are left out and named, unless their
content is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from chalicelib.cli.migrate.documents import DEEPEST, MOST_VALUES, Path, noted_lines
from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import Excess, documents_with_nodes
from chalicelib.policy.diagnostics import quote

_MOST_STEPS, _MOST_INDEX = 30, 1_000  # of Helm's --set
_STEP = re.compile(r"(?P<key>(?:[^.\[\]\\]|\\.)+)|\[(?P<index>[0-9]{1,4})\]|(?P<dot>\.)")
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_LITERALS = {"true": True, "false": False, "null": None}


class ChartValues(msgspec.Struct, frozen=True):
    """Values and their places. places: path -> `release.yaml:31`."""

    content: Mapping[str, Any] = {}
    places: Mapping[Path, str] = {}

    def under(self, later_values: ChartValues) -> ChartValues:
        """Return these values below those of a later layer."""
        places = {**self.places, **later_values.places}
        return ChartValues(_overlaid(self.content, later_values.content), places)

    def place_of(self, path: Path) -> str:
        """Return the place of the value at a path, or of the nearest one above it."""
        for length in range(len(path), -1, -1):
            if place := self.places.get(path[:length]):
                return place
        return ""

    def with_setting(self, name: str, value: Any, place: str) -> ChartValues:
        """Return these values with one that is given as Helm's `--set NAME=VALUE`. Raises BadInput
        for a name that Helm does not read."""
        steps = _steps(name)
        if not steps:
            problem = f"{quote(name)} is not the path of a value"
            raise BadInput(place, problem, "write it like autoDiscovery.clusterName")
        path = tuple(str(step) for step in steps)
        return ChartValues(_set(self.content, steps, value), {**self.places, path: place})


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        former = result.get(key)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            result[key] = _overlaid(former, value)
        else:
            result[key] = value
    return result


def typed(text: str) -> Any:
    """Return the value of Helm's `--set` as its parser types it."""
    if text.startswith("{") and text.endswith("}"):
        return [typed(part) for part in text[1:-1].split(",")] if text[1:-1] else []
    if text in _LITERALS:
        return _LITERALS[text]
    return int(text) if _WHOLE_NUMBER.match(text) else text


def _steps(name: str) -> list[str | int]:
    """Return the keys and indices of a path, empty for text that is none."""
    steps: list[str | int] = []
    at = 0
    while at < len(name) and len(steps) <= _MOST_STEPS:
        step = _STEP.match(name, at)
        if step is None:
            return []
        if step["key"] is not None:
            steps.append(re.sub(r"\\(.)", r"\1", step["key"]))
        elif step["index"] is not None:
            steps.append(int(step["index"]))
        at = step.end()
    beyond = any(isinstance(step, int) and step > _MOST_INDEX for step in steps)
    begins_with_index = bool(steps) and isinstance(steps[0], int)
    return [] if beyond or len(steps) > _MOST_STEPS or begins_with_index else steps


def _set(value: Any, steps: Sequence[str | int], new: Any) -> Any:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(value) if isinstance(value, list) else []
        items += [None] * (step + 1 - len(items))
        items[step] = _set(items[step], rest, new)
        return items
    entries = dict(value) if isinstance(value, Mapping) else {}
    entries[step] = _set(entries.get(step), rest, new)
    return entries


def values_of_text(text: str, place_of: Callable[[int], str], word: str) -> ChartValues:
    """Return the values of a YAML text. place_of: line of the text, from 1 -> place. word: the
    field, for errors. Raises BadInput for text that is not one object, or beyond a limit."""
    try:
        pairs = documents_with_nodes(text, deepest=DEEPEST, most=MOST_VALUES)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = place_of(mark.line + 1 if mark else 1)
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        detail = f"is {what}" if isinstance(error, Excess) else f"is not YAML ({what[:200]})"
        raise BadInput(f"{place}: {word}", detail, "correct it there") from None
    pairs = [(content, node) for content, node in pairs if content is not None]
    if not pairs:
        return ChartValues()
    content, node = pairs[0]
    if len(pairs) > 1 or not isinstance(content, Mapping):
        raise BadInput(f"{place_of(1)}: {word}", "is not one object of values", "correct it there")
    lines, _ = noted_lines(node)
    keyed = {str(key): value for key, value in content.items()}
    return ChartValues(keyed, {path: place_of(line) for path, line in lines.items()})


# -- templates -------------------------------------------------------------------------------------

_BEGINS = frozenset({"if", "with", "range", "define", "block"})
_CHANGES = frozenset({"else", "end", "break", "continue"})
_LONGEST_ACTION = 200
_SAFE_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,252}\Z")


class TemplatedPart(msgspec.Struct, frozen=True):
    """A value that a tool fills in. text: of the template's action, without its braces."""

    path: Path
    place: str
    text: str


class OpenedTemplate(msgspec.Struct, frozen=True):
    """A template as YAML, with a mark in the place of each action that gives a value. marks: mark
    -> text of the action. pattern: of marks. conditions: (line, text) of what is left out."""

    text: str = ""
    marks: Mapping[str, str] = {}
    pattern: str = ""
    conditions: tuple[tuple[int, str], ...] = ()


def opened_template(template: str, given: Mapping[str, str]) -> OpenedTemplate:
    """Return the literal part of a Go template. given: action -> its output, where that is known.

    Lines between `if` and `end`, and lines of actions alone, are left out; lines keep their
    numbers.
    """
    prefix = "outscalerTemplate"
    while prefix in template:
        prefix += "X"
    pieces: list[str] = []
    marks: dict[str, str] = {}
    conditions: list[tuple[int, str]] = []
    at = depth = 0
    line = 1
    while (begin := template.find("{{", at)) >= 0:
        end = template.find("}}", begin)
        if end < 0:
            break
        literal, action = template[at:begin], template[begin + 2 : end].strip("- \t\n\r")
        pieces.append(literal if depth == 0 else "\n" * literal.count("\n"))
        line += literal.count("\n")
        word = action.partition(" ")[0]
        if word in _BEGINS:
            if depth == 0:
                conditions.append((line, action[:_LONGEST_ACTION]))
            depth += 1
        elif word == "end":
            depth = max(depth - 1, 0)
        elif depth == 0 and word not in _CHANGES and not action.startswith(("/*", "$")):
            output = given.get(action)
            if output is None or not _SAFE_TEXT.match(output):
                output = f"{prefix}{len(marks)}Z"
                marks[output] = action[:_LONGEST_ACTION]
            pieces.append(output)
        newlines = template.count("\n", begin, end)
        pieces.append("\n" * newlines)
        line += newlines
        at = end + 2
    pieces.append(template[at:] if depth == 0 else "")
    return _without_lone_marks("".join(pieces), prefix, marks, conditions)


def _without_lone_marks(
    text: str, prefix: str, marks: Mapping[str, str], conditions: list[tuple[int, str]]
) -> OpenedTemplate:
    """Empty the lines that have nothing but marks, such as those of `toYaml … | nindent 2`."""
    lone = re.compile(rf"[ \t]*(?:{prefix}[0-9]+Z[ \t]*)+\Z")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if prefix in line and lone.match(line):
            conditions.append((number + 1, marks[line.split()[0].partition("Z")[0] + "Z"]))
            lines[number] = ""
    return OpenedTemplate("\n".join(lines), marks, rf"{prefix}[0-9]+Z", tuple(conditions))


def without_templates(
    values: ChartValues, template: OpenedTemplate
) -> tuple[ChartValues, tuple[TemplatedPart, ...]]:
    """Return the values without those that a template gives, and these. An item of a list goes as a
    whole, because a part of it would be another item."""
    literal = _LiteralPart(values, template)
    return ChartValues(literal.object_at((), values.content), values.places), tuple(
        literal.templated
    )


class _LiteralPart:
    """Goes through values once. templated: what was left out."""

    def __init__(self, values: ChartValues, template: OpenedTemplate) -> None:
        self._values, self._marks = values, template.marks
        self._pattern = re.compile(template.pattern) if template.pattern else None
        self.templated: list[TemplatedPart] = []

    def object_at(self, path: Path, entries: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the literal entries."""
        literal: dict[str, Any] = {}
        for key, item in entries.items():
            below = (*path, str(key))
            if not self._leave_out(below, key) and not self._leave_out(below, item):
                literal[str(key)] = self._value_at(below, item)
        return literal

    def _value_at(self, path: Path, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self.object_at(path, value)
        if not isinstance(value, list):
            return value
        items: list[Any] = []
        for at, item in enumerate(value):
            below, before = (*path, str(at)), len(self.templated)
            literal = None if self._leave_out(below, item) else self._value_at(below, item)
            if len(self.templated) == before:
                items.append(literal)
        return items

    def _leave_out(self, path: Path, text: Any) -> bool:
        """Note a text that a template gives. Return whether it is one."""
        action = ""
        if isinstance(text, str):
            match = self._pattern.search(text) if self._pattern is not None else None
            if match is not None:
                action = self._marks.get(match[0], "")
            elif "{{" in text:
                action = text[:_LONGEST_ACTION]
        if action:
            self.templated.append(TemplatedPart(path, self._values.place_of(path), action))
        return bool(action)
