"""Converts reasons to sentences, in the words of the scheduler and Cluster Autoscaler.
No other module does this.

`text` is what scripts and users of Cluster Autoscaler know (`Insufficient cpu`); `detail` adds
the numbers behind it (`needs 8, template offers 3900m`). Both are texts of the reason's row in
model/reason.py, with its parameters in braces:

    {group}              as it is, nothing if it is missing
    {rate:g}             a number in Python's notation, 0 if it is missing
    {until:time}         in one of the forms of `_FORMS`
    [, until {until:…}]  a part that is left out where a parameter of it is missing or empty;
                         its comma goes, too, where nothing stands before it
    [{group}|its group]  the text after the bar takes its place
    [needs?too soon ]    a part that depends on a parameter without showing it
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.quantity import format_amount, format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time

_BECAUSE = {"": ""} | {why.value: why.row.because for why in DisruptionReason}


def disruption_words(reason: str) -> str:
    """Return why nodes go, as the end of a sentence: `because of age`; "" for nodes that are not
    needed. reason: a DisruptionReason, or the word of another release."""
    return _BECAUSE.get(reason, f"for {reason}")


def text(reason: Reason) -> str:
    """Return the text alone, as Cluster Autoscaler and the scheduler word it."""
    return _filled(reason.code.row.words, reason)


def sentence(reason: Reason) -> str:
    """Return the text, followed by the numbers in brackets if there are any."""
    words = text(reason)
    detail = _filled(reason.code.row.detail, reason)
    return f"{words} ({detail})" if detail else words


def tally(reason: Reason) -> str:
    """Return what things are counted as that have the reason: `labels`."""
    return _filled(reason.code.row.tally, reason) or text(reason)


def lasting_first(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons in the order for people: what a person has to change comes before what
    passes by itself. Otherwise the order stays."""
    return tuple(sorted(reasons, key=lambda reason: reason.code.row.passes))


# -- a row's text, read once


_Form = Callable[[Reason, str], str]


class _Parameter(msgspec.Struct, frozen=True):
    """A parameter in a text, and how it is written there."""

    name: str
    form: _Form


_Pieces = tuple[str | _Parameter, ...]


class _Part(msgspec.Struct, frozen=True):
    """A part of a text. depends_on: the parameters without which `otherwise` takes its place."""

    pieces: _Pieces
    depends_on: tuple[_Parameter, ...] = ()
    otherwise: _Pieces = ()


_OPTIONAL = re.compile(r"\[(?:(\w+)\?)?([^\]|]*)(?:\|([^\]]*))?\]")
_PARAMETER = re.compile(r"\{(\w+)(?::([^}]*))?\}")


@cache
def _parts(template: str) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    end = 0
    for match in _OPTIONAL.finditer(template):
        if match.start() > end:
            parts.append(_Part(_pieces(template[end : match.start()])))
        end = match.end()
        hidden, shown, otherwise = match.groups()
        pieces = _pieces(shown)
        depends_on = [piece for piece in pieces if isinstance(piece, _Parameter)]
        if hidden:
            depends_on.append(_Parameter(hidden, _plain))
        parts.append(_Part(pieces, tuple(depends_on), _pieces(otherwise or "")))
    if end < len(template):
        parts.append(_Part(_pieces(template[end:])))
    return tuple(parts)


def _pieces(template: str) -> _Pieces:
    pieces: list[str | _Parameter] = []
    end = 0
    for match in _PARAMETER.finditer(template):
        if match.start() > end:
            pieces.append(template[end : match.start()])
        end = match.end()
        name, form = match.groups()
        pieces.append(_Parameter(name, _FORMS.get(form) or _in_notation(form)))
    if end < len(template):
        pieces.append(template[end:])
    return tuple(pieces)


def _filled(template: str, reason: Reason) -> str:
    """Return a text of the reason's row with its parameters."""
    if "{" not in template and "[" not in template:
        return template
    words = ""
    for part in _parts(template):
        pieces = part.pieces
        if part.depends_on:
            if not all(_is_known(parameter, reason) for parameter in part.depends_on):
                pieces = part.otherwise
            elif pieces and not words and isinstance(pieces[0], str):
                pieces = (pieces[0].lstrip(",: "), *pieces[1:])
        for piece in pieces:
            words += piece if isinstance(piece, str) else piece.form(reason, piece.name)
    return words


def _is_known(parameter: _Parameter, reason: Reason) -> bool:
    return parameter.name in reason.params and parameter.form(reason, parameter.name) != ""


# -- forms of parameters


def _plain(reason: Reason, name: str) -> str:
    return str(reason.params.get(name, ""))


def _number(reason: Reason, name: str) -> float:
    value = reason.params.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _in_notation(notation: str) -> _Form:
    return lambda reason, name: format(_number(reason, name), notation)


def _first(reason: Reason, name: str) -> str:
    return _plain(reason, name).partition(",")[0]


def _amount(reason: Reason, name: str) -> str:
    return format_amount(_plain(reason, "resource"), int(_number(reason, name)))


def _whole(reason: Reason, name: str) -> str:
    """Return an amount of the first resource of a limit, whose cores are whole ones."""
    resource = _first(reason, "resources")
    unit = 1000 if resource == "cpu" else 1
    return format_amount(resource, int(_number(reason, name)) * unit)


def _several(reason: Reason, name: str) -> str:
    return _plain(reason, name) if _number(reason, name) > 1 else ""


def _gap(reason: Reason, name: str) -> str:
    """Return how far from the best plan a search ended. A gap of 1 says nothing: there is no plan
    to compare with the best one."""
    gap = _number(reason, name)
    return "" if gap in (0.0, 1.0) else f"{gap:.1%}"


_RENEWALS = {why.value: why.row.renewal for why in DisruptionReason if why.row.renewal}


def _renewal(reason: Reason, name: str) -> str:
    return _RENEWALS.get(_plain(reason, name), "renewal")


def _inner(reason: Reason, name: str) -> Reason:
    """Return the reason whose code is a parameter, with those that the outer one does not show."""
    row = reason.code.row
    own = {shown for shown, _ in _PARAMETER.findall(row.words + row.detail)}
    params = {key: value for key, value in reason.params.items() if key not in own}
    return Reason(ReasonCode(_plain(reason, name)), params)


def _remedy(reason: Reason, name: str) -> str:
    inner = _inner(reason, name)
    return _filled(inner.code.row.remedy, inner) or "look at the pod"


_FORMS: Mapping[str | None, _Form] = MappingProxyType(
    {
        None: _plain,
        "first": _first,  # of several names
        "amount": _amount,  # of the parameter `resource`
        "whole": _whole,
        "several": _several,  # a number above 1
        "time": lambda reason, name: format_time(_number(reason, name)),
        "duration": lambda reason, name: format_duration(_number(reason, name)),
        "gap": _gap,
        "renewal": _renewal,
        "sentence": lambda reason, name: sentence(_inner(reason, name)),
        "remedy": _remedy,
    }
)
