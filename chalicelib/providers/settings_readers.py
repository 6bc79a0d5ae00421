"""Readers for the settings of several providers, which report all errors of a section at once.

Settings reach a provider as text. The policy has validated each value separately. A provider reads them again because
it is also built without a stored policy (a plan from files), and because only it knows which values are valid together.
Every reader takes the path of its section in the policy (`providers.alicloud`), so errors name the key that the user
wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY

Texts = Mapping[str, str]
Reader = Callable[[Texts], object]
B = TypeVar("B")

RESERVE = {"reservedCpu": CPU, "reservedMemory": MEMORY, "reservedEphemeralStorage": EPHEMERAL}
"""The settings for kubelet reservations, with the resource of each."""
MOST_CALLS = 1000.0

_WHOLE = re.compile(r"[+-]?[0-9]{1,9}\Z", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?\Z", re.ASCII)
_PLAIN = re.compile(r"[\x21-\x5b\x5d-\x7e]+\Z")  # characters that need no escape: an address is signed as written
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def read_all(settings: Texts, readers: Mapping[str, Reader], known: Iterable[str], place: str) -> dict[str, object]:
    """Return field -> value, each from its reader.

    Raises BadInput, or BadInputs for several errors; an unknown key is an error too."""
    fields: dict[str, object] = {}
    mistakes: list[BadInput] = []
    for field, reader in readers.items():
        try:
            fields[field] = reader(settings)
        except InputErrors as several:
            mistakes.extend(several.problems)
        except BadInput as mistake:
            mistakes.append(mistake)
    names = sorted(known)
    mistakes.extend(
        BadInput(f"{place}.{key}", "there is no such setting", f"the settings are {', '.join(names)}")
        for key in settings
        if key not in names
    )
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else InputErrors(tuple(mistakes))
    return fields


def reserve(place: str) -> Callable[[Texts], dict[str, int]]:
    """Return resource -> amount reserved on a new node (cpu in millicores, the rest in bytes), from the keys of
    RESERVE."""

    def read(settings: Texts) -> dict[str, int]:
        found = {}
        for key, resource in RESERVE.items():
            if text := settings.get(key, ""):
                try:
                    amount = parse_amount(resource, text)
                except BadInput as bad:
                    raise BadInput(f"{place}.{key}", bad.problem, bad.remedy) from None
                if amount < 0:
                    raise BadInput(f"{place}.{key}", f"{text!r} is negative", "write 0 or more")
                found[resource] = amount
        return found

    return read


def calls_per_second(place: str, default: float) -> Callable[[Texts], float]:
    """Return the value of the key callsPerSecond."""

    def read(settings: Texts) -> float:
        text = settings.get("callsPerSecond") or f"{default:g}"
        if not _NUMBER.match(text) or not 0.1 <= float(text) <= MOST_CALLS:
            raise BadInput(
                f"{place}.callsPerSecond",
                f"{text!r} is not a number from 0.1 to {MOST_CALLS:g}",
                f"leave it out for {default:g}",
            )
        return float(text)

    return read


def flag(place: str, key: str, *, default: bool) -> Callable[[Texts], bool]:
    """Return the value of a boolean key."""

    def read(settings: Texts) -> bool:
        text = settings.get(key, "")
        if text not in {"", "true", "false"}:
            raise BadInput(f"{place}.{key}", f"{text!r} is neither true nor false", "write true or false")
        return text == "true" if text else default

    return read


def address(place: str, key: str, url: str, example: str, *, path: bool = False) -> str:
    """Return a root URL with TLS, without a trailing slash. Raises BadInput.

    A URL without TLS is accepted for this machine only, for the emulators. path: a path is allowed."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        whole = bool(parts.hostname) and (path or parts.path in {"", "/"}) and not (parts.query or parts.fragment)
        right = whole and (plain or parts.scheme == "https") and "@" not in parts.netloc and parts.port != 0
        right = right and _PLAIN.match(url) is not None
    except ValueError:
        right = False
    if not right:
        raise BadInput(f"{place}.{key}", "is not an https address", f"write it like {example}")
    return url.rstrip("/")


def node_spec(text: str, place: str, example: str) -> tuple[int, int, str]:
    """Parse `min:max:name` as in upstream's --nodes. Raises BadInput.

    Split at the first two colons, integers without blanks, 0 <= min <= max, a name without blanks. example: a valid
    spec."""
    form = f"write it like {example}"
    parts = text.split(":", 2)
    if len(parts) != 3 or not parts[2] or re.search(r"\s", parts[2]):
        raise BadInput(place, f"{text!r} is not min:max:{example.rpartition(':')[2]}", form)
    for name, part in zip(("min", "max"), parts, strict=False):
        if not _WHOLE.match(part):
            raise BadInput(place, f"{name} {part!r} of {text!r} is not a whole number", form)
    least, most = int(parts[0]), int(parts[1])
    if least < 0:
        raise BadInput(place, f"min of {text!r} is negative", "write 0 or more")
    if most < least:
        raise BadInput(place, f"max of {text!r} is below its min", f"write {least} or more, or lower min")
    return least, most, parts[2]


class GroupForm(msgspec.Struct, Generic[B], frozen=True):
    """How a provider names its groups.

    place: the path of its section. parse: a spec and its place -> its bounds. of_entry: an entry of nodeGroups -> its
    bounds. name: of bounds. each: the noun for errors about duplicates ("each pool"). none: problem and remedy of a
    policy without groups; None if the provider discovers them.
    """

    provider: str
    place: str
    parse: Callable[[str, str], B]
    of_entry: Callable[[GroupPolicy], B]
    name: Callable[[B], str]
    each: str
    none: tuple[str, str] | None = None


def named_groups(settings: Texts, entries: Iterable[GroupPolicy], form: GroupForm[B]) -> tuple[B, ...]:
    """Return the groups of a section, from its `nodes` (one spec per line) and from the policy's entries for this
    provider.

    Each group comes from only one of the two. Raises BadInput, or BadInputs for several errors.
    """
    mistakes: list[BadInput] = []
    found: dict[str, B] = {}
    specs = f"{form.place}.nodes"
    lines = [line.strip() for line in settings.get("nodes", "").splitlines()]
    ours = [entry for entry in entries if entry.provider == form.provider]
    readers: list[tuple[str, Callable[[], B]]] = [
        *((specs, partial(form.parse, line, specs)) for line in lines if line),
        *((f"nodeGroups: {entry.id}", partial(form.of_entry, entry)) for entry in ours),
    ]
    for where, read in readers:
        try:
            bounds = read()
            if form.name(bounds) in found:
                raise BadInput(where, f"{form.name(bounds)} is given twice", f"name {form.each} once")
            found[form.name(bounds)] = bounds
        except BadInput as mistake:
            mistakes.append(mistake)
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else InputErrors(tuple(mistakes))
    if not found and form.none is not None:
        raise BadInput(specs, *form.none)
    return tuple(found.values())


def entry_bounds(group_policy: GroupPolicy) -> tuple[int, int]:
    """Return min and max of an entry of nodeGroups, for a provider without a default for max. Raises BadInput."""
    place = f"nodeGroups: {group_policy.id}"
    if group_policy.max is None:
        raise BadInput(place, "has no max", f"add max: the provider {group_policy.provider} has no default for it")
    least = group_policy.min or 0
    check_order(place, least, group_policy.max)
    return least, group_policy.max


def check_order(place: str, least: int | None, most: int | None) -> None:
    """Raise BadInput if a maximum is below its minimum. None: not given."""
    if least is not None and most is not None and most < least:
        raise BadInput(place, f"max {most} is below min {least}", f"write {least} or more, or lower min")
