"""What an operator types: arguments that several commands have, AWS's commands for secrets,
durations, and names. Names are matched exactly; for others, the error suggests similar ones."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from chalicelib.cli.output import is_fold_of, is_folded
from chalicelib.model.errors import BadInput
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.model.quantity import format_duration, parse_duration
from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.reasons.words import some

_SHOWN = 5
_COMPARED = 5000  # names compared letter by letter; each costs some microseconds
_T = TypeVar("_T")


def add_cluster_arguments(
    parser: argparse.ArgumentParser, kubeconfig: str, management: str = ""
) -> None:
    """Add --kubeconfig and --context, and --management-kubeconfig where
    there is a help text for it."""
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help=kubeconfig)
    parser.add_argument(
        "--context", metavar="NAME", help="the kubeconfig's context, if not its current one"
    )
    if management:
        parser.add_argument("--management-kubeconfig", metavar="FILE", type=Path, help=management)


SECRET_STORES = {"ssm": PARAMETER, "secretsmanager": ""}
"""Where a new policy keeps its secrets -> how their names begin in it. The first is proposed."""


def store_command(name: str, value: str = "file://FILE", *, exists: bool = False) -> str:
    """Return the shell command that stores a secret under its name in a policy. exists: replace its
    value. A parameter of more than 4 KB becomes an advanced one by itself."""
    if name.startswith(PARAMETER):
        form = f"--type SecureString --tier Intelligent-Tiering{' --overwrite' if exists else ''}"
        return (
            f"aws ssm put-parameter {form} --name {shlex.quote(parameter_name(name))} --value "
            f"{value}"
        )
    verb = "put-secret-value --secret-id" if exists else "create-secret --name"
    return f"aws secretsmanager {verb} {shlex.quote(name)} --secret-string {value}"


def add_secret_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the names of a new policy's secrets."""
    parser.add_argument(
        "--secret-prefix",
        metavar="PREFIX",
        help="prefix of the deployment's secrets (default: the deployment's)",
    )
    parser.add_argument(
        "--secret-store",
        choices=list(SECRET_STORES),
        default="ssm",
        help=(
            "a parameter of SSM each, which costs nothing by itself (default), or secrets of "
            "Secrets Manager"
        ),
    )


def add_duration_argument(
    parser: argparse.ArgumentParser,
    least: float,
    most: float,
    example: str,
    *,
    default: float,
    text: str,
) -> None:
    """Add --for, as `lasts`. least, most, default: seconds."""
    limits = f" from {format_duration(least)} to {format_duration(most)}, such as {example}"
    kind = duration(least, most, limits)
    parser.add_argument(
        "--for", type=kind, default=default, dest="lasts", metavar="DURATION", help=text
    )


def named(name: str, known: Mapping[str, _T], place: str, what: str) -> _T:
    """Return the object with that name; raises BadInput with the nearest names. what: `node`, `node
    group`, for the message."""
    whole = unfolded(name, known)
    if whole in known:
        return known[whole]
    raise unknown(name, known, place, what)


def unfolded(text: str, known: Collection[str]) -> str:
    """Return the only name of which a table on a terminal shows this folded form; the text itself
    where it is none."""
    if text in known or not is_folded(text):
        return text
    return _only([name for name in known if is_fold_of(text, name)], text)


def in_any_case(text: str, known: Collection[str]) -> str:
    """Return the only name that has these letters in any case; the text itself where none has."""
    if text in known:
        return text
    return _only([name for name in known if name.casefold() == text.casefold()], text)


def _only(names: Sequence[str], otherwise: str) -> str:
    return names[0] if len(names) == 1 else otherwise


def namespaced(name: str, known: Mapping[str, _T], place: str, what: str) -> _T:
    """Return the object `namespace/name`, or `name` if it exists in only one
    namespace; raises BadInput."""
    if "/" in name or name in known:
        return named(name, known, place, what)
    keys = sorted(key for key in known if key.partition("/")[2] == name)
    if len(keys) == 1:
        return known[keys[0]]
    if not keys:
        raise unknown(name, known, place, what)
    raise BadInput(
        place, f"{name!r} is in {len(keys)} namespaces", f"write one of {some(keys, _SHOWN)}"
    )


def unknown(name: str, known: Collection[str], place: str, what: str) -> BadInput:
    """Return the error for an unknown name, with suggestions."""
    close = near(name, known)
    if close:
        remedy = f"did you mean {some(close, _SHOWN)}?"
    else:
        remedy = (
            f"there are {some(sorted(known), _SHOWN)}" if known else f"there is no {what} at all"
        )
    return BadInput(place, f"no {what} is called {name!r}", remedy)


def not_one_of(text: str, words: Sequence[str], further: Sequence[str] = ()) -> str:
    """Return the message about a word that is none of a closed list, with the nearest one. further:
    words that are taken, but not listed."""
    close = get_close_matches(text, (*words, *further), n=1)
    return (
        f"{text[:60]!r} is not one of "
        f"{', '.join(words)}{f'; did you mean {close[0]}?' if close else ''}"
    )


def near(name: str, known: Collection[str]) -> list[str]:
    """Return names that start with this one; if none, names that contain it; if none, similar
    names. `namespace/` is respected where it is given."""
    space, _, name_part = name.rpartition("/")
    inside = {
        candidate: candidate.removeprefix(f"{space}/") if space else candidate.rpartition("/")[2]
        for candidate in sorted(known)
        if not space or candidate.startswith(f"{space}/")
    }
    fits: tuple[Callable[[str], bool], ...] = (
        lambda short: short.startswith(name_part),
        lambda short: name_part in short,
    )
    for fit in fits:
        hits = [candidate for candidate, short in inside.items() if fit(short)]
        if hits:
            return hits
    alike = [
        short
        for short in inside.values()
        if abs(len(short) - len(name_part)) <= max(3, len(name_part) // 3)
    ]
    close = get_close_matches(name_part, alike[:_COMPARED], n=3)
    if not close and space:
        return near(name_part, known)
    return [
        candidate
        for text in dict.fromkeys(close)
        for candidate, short in inside.items()
        if short == text
    ]


_DAY = 86400.0


def duration(
    least: float, most: float, limits: str, *, days: bool = False
) -> Callable[[str], float]:
    """Return a type that reads a duration as seconds. least, most: seconds. limits: ends the
    message about any other text. days: whole days such as 7d are permitted, too."""

    def read(text: str) -> float:
        number = text.removesuffix("d")
        try:
            whole = days and number != text and number.isascii() and number.isdecimal()
            seconds = float(number) * _DAY if whole else parse_duration(text)
        except BadInput:
            seconds = -1.0
        if not least <= seconds <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a duration{limits}")
        return seconds

    return read


# -- node groups


class AmbiguousGroup(BadInput):
    """A name that several node groups have."""


def meant_group(groups: Sequence[GroupOverview], text: str, place: str) -> str:
    """Return the id of the node group that a person means by its id, its name or an alias. Raises
    AmbiguousGroup, and BadInput with the nearest names."""
    from chalicelib.views.rows import group_named, short_name, unique_names

    everything = {word for group in groups for word in (group.group, group.name)}
    match = group_named(ClusterOverview(groups=tuple(groups)), unfolded(text, everything))
    if match.group:
        return match.group
    names = unique_names(groups)
    words = [{group.group, group.name, short_name(group.group), *group.aliases} for group in groups]
    count = sum(text.casefold() in {word.casefold() for word in own} for own in words)
    if count > 1:
        raise AmbiguousGroup(
            place,
            f"{text!r} is {count} node groups",
            f"write one of {some(list(match.candidates), _SHOWN)}",
        )
    close = (
        list(match.candidates)
        or near(text, set(names.values()))
        or [names[key] for key in near(text, names)]
    )
    if close:
        raise BadInput(
            place, f"no node group is called {text!r}", f"did you mean {some(close, _SHOWN)}?"
        )
    raise unknown(text, set(names.values()), place, "node group")
