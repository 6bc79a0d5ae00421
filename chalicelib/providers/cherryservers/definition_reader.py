"""Builds and checks the definition of each pool from the written sections and their defaults.

An error in one pool's section affects that pool only; an error in a value that all pools need, such as the project,
affects them all. Where upstream sends an empty value (a pool without a plan), the default definition applies here. What
upstream silently ignores (a project set for one pool) is refused here.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import place_of
from chalicelib.providers.cherryservers.pool_definition import (
    DEFAULT_PATTERN,
    Definition,
    check,
    hostname,
    letters_for,
    needs_token,
)
from chalicelib.providers.cherryservers.settings import DEFAULT, PLACE, CherrySettings, cluster_name

__all__ = ["Definition", "Definitions", "mistakes", "read_definitions"]

_LARGEST = 2**31 - 1
_MOST_CORES, _MOST_GIGABYTES = 4096, 1_000_000
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MAKES_A_DEFAULT = ("cluster-name", "cloudinit", "region", "plan", "project-id")
_NEEDED = {"plan": "e5_1620v4", "region": "eu_nord_1", "os": "ubuntu_24_04"}  # with an example value
_OF_THE_DEFAULT = ("project-id", "api-server-endpoint")


def read_definitions(settings: CherrySettings, read_secret: Callable[[str], str]) -> Definitions:
    """Return the definitions that the settings name. Raises BadInput for an error that affects every pool, and what
    read_secret raises."""
    source = settings.definitions
    if source.mapping:
        place, sections = f"{PLACE}.nodeGroupDefs", from_mapping(source.mapping)
    elif source.secret:
        place = place_of(source.secret)
        sections = from_gcfg(read_secret(source.secret), place)
    else:
        place = f"{PLACE}.cloudConfig"
        sections = from_gcfg(source.text, place)
    default = sections.get(DEFAULT)
    if default is None or not (settings.project_id or any(_last(default, key) for key in _MAKES_A_DEFAULT)):
        raise BadInput(
            place,
            "has no default definition" if default is None else "has an empty default definition",
            'add [nodegroupdef "default"] (or [Global], or default under nodeGroupDefs) with project-id, '
            "region, plan and os",
        )
    return Definitions(sections, default, _project(default, settings), settings)


def mistakes(settings: CherrySettings) -> tuple[BadInput, ...]:
    """Return the errors of definitions that are written in the policy itself, for validation before it is applied.
    Definitions in a secret are not read."""
    if settings.definitions.secret:
        return ()
    try:
        definitions = read_definitions(settings, str)
    except BadInput as mistake:
        return (mistake,)
    found: dict[str, BadInput] = {}  # an error in an inherited value is reported once
    for bounds in settings.groups:
        try:
            definitions.of(bounds.name)
        except BadInput as mistake:
            place = mistake.place if mistake.place.startswith(PLACE) else f"{PLACE}: {mistake.place}"
            found.setdefault(str(mistake), BadInput(place, mistake.problem, mistake.remedy))
    return tuple(found.values())


class Definitions:
    """The definitions of one cluster's pools. project: the number of the project of all servers; cluster_name: for
    pools that name none, may be empty."""

    def __init__(
        self, sections: Mapping[str, Written], default: Written, project: int, settings: CherrySettings
    ) -> None:
        self.project = project
        self.cluster_name = _cluster_name(default, settings)
        self._sections, self._default, self._settings = sections, default, settings

    def of(self, pool: str) -> Definition:
        """Return the definition of a pool; without its own section, the default's with the pool's name. Raises
        BadInput, which affects this pool only."""
        own = self._sections.get(pool, self._default)
        self._same_as_default(own)
        lacking = [key for key in _NEEDED if not self._text(own, key)]
        if lacking:
            raise BadInput(
                own.place, f"pool {pool} has no {', no '.join(lacking)}", "add it there, or to the default definition"
            )
        definition = Definition(
            pool=pool,
            cluster_name=self._cluster_of(own, pool),
            project_id=self.project,
            api_server_endpoint=self._text(self._default, "api-server-endpoint"),
            region=self._slug(own, "region"),
            plan=self._slug(own, "plan"),
            os=self._slug(own, "os"),
            ssh_key_ids=self._keys(own),
            cloudinit=self._text(own, "cloudinit"),
            hostname_pattern=self._text(own, "hostname-pattern") or DEFAULT_PATTERN,
            os_partition_size=self._number(own, "os-partition-size", _MOST_GIGABYTES, "60"),
            spot=self._flag(own, "spot-market"),
            cpu_override=self._number(own, "cpu-override", _MOST_CORES, "16"),
        )
        self._check(definition)
        return definition

    def _check(self, definition: Definition) -> None:
        """Check everything that creating or finding a server needs, before one is bought."""
        hostname(definition, letters_for(definition.pool))
        check(definition)
        bootstrap = self._settings.bootstrap
        if needs_token(definition) and not (bootstrap.create or bootstrap.secret):
            raise BadInput(
                f"{PLACE}.bootstrapTokenSecret",
                f"is missing, and the cloudinit of pool {definition.pool} asks for a bootstrap token",
                "name a secret with one, or set createBootstrapTokens: true",
            )

    def _same_as_default(self, own: Written) -> None:
        """Check that a pool does not override these two keys, which apply to all pools."""
        for key in _OF_THE_DEFAULT:
            said = _last(own, key)
            theirs = str(self.project) if key == "project-id" else self._text(self._default, key)
            given = said.text.strip() if said else ""
            if key == "project-id":
                given = given.lstrip("0")  # in upstream, 0 means none
            if said and given and given != theirs:
                raise BadInput(
                    said.place,
                    f"{key} differs from the default definition's",
                    "one cluster is in one project and behind one endpoint: take the line out",
                )

    def _cluster_of(self, own: Written, pool: str) -> str:
        """Return the cluster name: the pool's own, then clusterName, then the default's, where upstream gives up.
        Upstream's order must be kept, because running servers carry this name in a tag."""
        own_name = _last(own, "cluster-name")
        name = cluster_name(own_name.text, own_name.place) if own_name else self._settings.cluster_name
        if not (name or self.cluster_name):
            raise BadInput(
                f"{PLACE}.clusterName",
                f"is missing, and pool {pool} has no cluster-name",
                "write the name that the cluster's machines bear in their tag k8s-cluster",
            )
        return name or self.cluster_name

    def _said(self, own: Written, key: str) -> ConfiguredValue | None:
        return _last(own, key) or _last(self._default, key)

    def _text(self, own: Written, key: str) -> str:
        said = self._said(own, key)
        return said.text.strip() if said else ""

    def _slug(self, own: Written, key: str) -> str:
        said = self._said(own, key)
        if said is None or not re.fullmatch(r"[\x20-\x7e]{1,200}", said.text.strip()):
            raise BadInput(
                said.place if said else own.place,
                f"{key} contains special characters or is too long",
                f"write the vendor's slug, such as {_NEEDED[key]}",
            )
        return said.text.strip()

    def _number(self, own: Written, key: str, most: int, example: str) -> int:
        said = self._said(own, key)
        if said is None:
            return 0
        return _whole(said, key, most, f"write a whole number up to {most}, such as {example}, or 0 for none")

    def _flag(self, own: Written, key: str) -> bool:
        said = self._said(own, key)
        if said is None:
            return False
        if said.text.strip().lower() not in _TRUTH:
            raise BadInput(said.place, f"{key} is neither true nor false", "write true or false")
        return _TRUTH[said.text.strip().lower()]

    def _keys(self, own: Written) -> tuple[int, ...]:
        """Return the SSH keys. A list is inherited as a whole; an explicitly empty list stays empty."""
        section = own if "ssh-key-ids" in own.said else self._default
        return tuple(
            _whole(said, f"ssh-key-ids: number {position}", _LARGEST, "write a key's id, one per line, like 101")
            for position, said in enumerate(section.said.get("ssh-key-ids", ()), start=1)
        )


def _last(section: Written, key: str) -> ConfiguredValue | None:
    """Return the effective value; None if it is not set or empty, which are equal."""
    said = section.said.get(key)
    return said[-1] if said and said[-1].text.strip() else None


def _whole(configured: ConfiguredValue, what: str, most: int, remedy: str) -> int:
    text = configured.text.strip()
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or int(text) > most:
        raise BadInput(configured.place, f"{what} is {text[:40]!r}", remedy)
    return int(text)


def _project(default: Written, settings: CherrySettings) -> int:
    said = _last(default, "project-id")
    written = _whole(said, "project-id", _LARGEST, "write it like 10001") if said else 0
    place = f"{PLACE}.projectId"
    if written and settings.project_id and written != settings.project_id:
        raise BadInput(
            place,
            f"{settings.project_id} differs from project-id {written} of the default definition",
            "keep one of the two",
        )
    if not (written or settings.project_id):
        raise BadInput(place, "is missing, and the default definition has no project-id", "write it like 10001")
    return written or settings.project_id


def _cluster_name(default: Written, settings: CherrySettings) -> str:
    said = _last(default, "cluster-name")
    return settings.cluster_name or (cluster_name(said.text, said.place) if said else "")


_HEADER = re.compile(r'\[[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:"((?:[^"\\]|\\.)*)")?[ \t]*\][ \t]*(?:[;#].*)?\Z')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)[ \t]*(=|[;#]|\Z)")
_SUB_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_BLANKS = " \t"


class Entry(msgspec.Struct, frozen=True):
    """One `key = value`. key: in lower case; value None: the key has no `=`."""

    key: str
    value: str | None
    line: int


class Section(msgspec.Struct, frozen=True):
    """One header and its entries. name: in lower case; sub None: without a sub-section."""

    name: str
    sub: str | None
    line: int
    entries: tuple[Entry, ...]


def parse_gcfg(text: str, place: str) -> tuple[Section, ...]:
    """Return the file's sections in order, without merging equal ones. Raises BadInput naming `place` and the line."""
    lines = _Lines(text.removeprefix("\ufeff"), place)
    found: list[tuple[Section, list[Entry]]] = []
    while (line := lines.next()) is not None:
        written, number = line.lstrip(_BLANKS), lines.number
        if not written or written[0] in ";#":
            continue
        if written[0] == "[":
            found.append((_header(written, number, lines), []))
        elif not found:
            raise lines.bad(number, "is before the first section", 'begin with [Global] or [nodegroupdef "name"]')
        else:
            found[-1][1].append(_entry(written, number, lines))
    return tuple(msgspec.structs.replace(section, entries=tuple(entries)) for section, entries in found)


class _Lines:
    """An iterator over the lines, from which a value can take continuation lines."""

    def __init__(self, text: str, place: str) -> None:
        self._lines, self._place, self.number = text.split("\n"), place, 0

    def next(self) -> str | None:
        """Return the next line without its end; None at the end of the file."""
        if self.number == len(self._lines):
            return None
        self.number += 1
        line = self._lines[self.number - 1].replace("\r", "")
        if "\0" in line:
            raise self.bad(self.number, "contains a zero byte", "save the file as plain text")
        return line

    def bad(self, number: int, problem: str, remedy: str) -> BadInput:
        """Return the error for a line."""
        return BadInput(f"{self._place}: line {number}", problem, remedy)


def _header(line: str, number: int, lines: _Lines) -> Section:
    match = _HEADER.match(line)
    if match is None or match[2] == "" or any(each not in '\\"' for each in _SUB_ESCAPE.findall(match[2] or "")):
        raise lines.bad(
            number, "is not a section's header", 'write [Global] or [nodegroupdef "name"] on a line of its own'
        )
    sub = None if match[2] is None else _SUB_ESCAPE.sub(r"\1", match[2])
    return Section(match[1].lower(), sub, number, ())


def _entry(line: str, number: int, lines: _Lines) -> Entry:
    match = _KEY.match(line)
    if match is None:
        raise lines.bad(
            number,
            "is neither a section's header nor key=value",
            "write a value on one line, such as base64 without breaks",
        )
    value = _value(line[match.end() :], number, lines) if match[2] == "=" else None
    return Entry(match[1].lower(), value, number)


def _value(rest: str, number: int, lines: _Lines) -> str:
    """Return the text after the `=`: unquoted, with escapes replaced, without a comment and surrounding blanks. A
    trailing backslash continues the value on the next line."""
    kept: list[str] = []
    end, quoted, at = 0, False, 0  # end: position after the last character that is not a surrounding blank
    rest = rest.lstrip(_BLANKS)
    while True:
        if at == len(rest):
            if quoted:
                raise lines.bad(number, "has a quote that is not closed", 'close it with ", or write \\" for one')
            return "".join(kept[:end])
        letter = rest[at]
        at += 1
        if letter == '"':
            quoted = not quoted
            end = len(kept)
        elif letter == "\\":
            if at == len(rest) and not quoted:
                rest, at = lines.next() or "", 0
                continue
            escape = rest[at : at + 1]
            if escape not in _ESCAPES:
                raise lines.bad(number, "contains an invalid escape", "write \\\\ for a backslash")
            kept.append(_ESCAPES[escape])
            at, end = at + 1, len(kept)
        elif not quoted and letter in ";#":
            at = len(rest)
        else:
            kept.append(letter)
            end = len(kept) if quoted or letter not in _BLANKS else end


LISTS = frozenset({"ssh-key-ids"})
FLAGS = frozenset({"spot-market"})
KEYS: Mapping[str, str] = {
    "cluster-name": "clusterName",
    "project-id": "projectId",
    "api-server-endpoint": "apiServerEndpoint",
    "region": "region",
    "plan": "plan",
    "os": "os",
    "ssh-key-ids": "sshKeyIds",
    "cloudinit": "cloudinit",
    "hostname-pattern": "hostnamePattern",
    "os-partition-size": "osPartitionSize",
    "spot-market": "spotMarket",
    "cpu-override": "cpuOverride",
}
"""Upstream's keys and the last two of ours; their names in nodeGroupDefs."""
CLOUD_INIT = "cloudInit"
"""cloudinit in nodeGroupDefs as plain text, without base64."""

_GLOBAL, _DEFS = "global", "nodegroupdef"
# the spelling in upstream's README
_API_SERVER = {"api-server": "api-server-endpoint", "apiServer": "apiServerEndpoint"}
_LIKE_A_KEY = re.compile(r"[A-Za-z][A-Za-z_.-]{0,31}\Z")


class ConfiguredValue(msgspec.Struct, frozen=True):
    """One value and its place."""

    text: str
    place: str


class Written(msgspec.Struct, frozen=True):
    """The section of one pool. said: key -> values, several for a list; an empty tuple: explicitly none."""

    place: str
    said: dict[str, tuple[ConfiguredValue, ...]]


def from_gcfg(text: str, place: str) -> dict[str, Written]:
    """Return pool -> section from upstream's file. Raises BadInput. [Global] is the default unless a section has the
    default's name; it is then ignored."""
    found: dict[str, Written] = {}
    common: Written | None = None
    for section in parse_gcfg(text, place):
        where = f"{place}: line {section.line}"
        if section.name == _GLOBAL and section.sub is None:
            common = _read(section, common, place)
        elif section.name == _DEFS:
            found[section.sub or ""] = _read(section, found.get(section.sub or ""), place)
        else:
            raise BadInput(
                where,
                f"there is no section {_named(section.name)}",
                'the sections are [Global] and [nodegroupdef "name"]',
            )
    return found if common is None else {DEFAULT: common, **found}


def _read(section: Section, before: Written | None, place: str) -> Written:
    """Merge a section into the earlier ones of the same name: a later value replaces, lists are joined."""
    title = section.name if section.sub is None else f'{section.name} "{section.sub}"'
    said = dict(before.said) if before else {}
    for entry in section.entries:
        where = f"{place}: line {entry.line}"
        if entry.key not in KEYS:
            raise _unknown(where, entry.key, KEYS)
        if entry.value is None:
            if entry.key not in LISTS | FLAGS:
                raise BadInput(where, f"{entry.key} has no value", f"write {entry.key}=…, or take the line out")
            said[entry.key] = (ConfiguredValue("true", where),) if entry.key in FLAGS else ()
        else:
            earlier = said.get(entry.key, ()) if entry.key in LISTS else ()
            said[entry.key] = (*earlier, ConfiguredValue(entry.value, where))
    return Written(before.place if before else f"{place}: [{title}]", said)


def from_mapping(text: str, place: str = f"{PLACE}.nodeGroupDefs") -> dict[str, Written]:
    """Return pool -> section from nodeGroupDefs in JSON; cloudInit becomes cloudinit. Raises BadInput."""
    try:
        pools = msgspec.json.decode(text, type=dict[str, dict[str, _Value]])
    except msgspec.MsgspecError:
        raise BadInput(
            place,
            "is not a mapping of pools to keys and values",
            "write it like {default: {region: …, plan: …, os: …}, pool2: {plan: …}}",
        ) from None
    names = {camel: key for key, camel in KEYS.items()} | {CLOUD_INIT: "cloudinit"}
    found = {}
    for pool, values in pools.items():
        below = f"{place}.{pool}"
        said: dict[str, tuple[ConfiguredValue, ...]] = {}
        for camel, value in values.items():
            where = f"{below}.{camel}"
            if camel not in names:
                raise _unknown(where, camel, names)
            key = names[camel]
            if key in said:
                raise BadInput(where, "conflicts with cloudinit", "keep one of the two")
            if isinstance(value, list) and key not in LISTS:
                raise BadInput(where, "is a list", "write one value")
            each = value if isinstance(value, list) else [value]
            texts = tuple(ConfiguredValue(_text(one), where) for one in each if one is not None)
            said[key] = _encoded(texts) if camel == CLOUD_INIT else texts
        found[pool] = Written(below, said)
    return found


_Value = str | bool | int | None | list[str | int]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encoded(texts: tuple[ConfiguredValue, ...]) -> tuple[ConfiguredValue, ...]:
    return tuple(ConfiguredValue(base64.b64encode(said.text.encode()).decode(), said.place) for said in texts)


def _unknown(where: str, key: str, known: Mapping[str, str]) -> BadInput:
    if key in _API_SERVER:
        return BadInput(where, f"there is no key {key}", f"upstream's README means {_API_SERVER[key]}; write that")
    near = difflib.get_close_matches(key, known, n=1)
    return BadInput(
        where,
        f"there is no key {_named(key)}",
        f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}",
    )


def _named(key: str) -> str:
    """Return a name that is safe to show: part of a value that was broken over two lines may look like a key."""
    return key if _LIKE_A_KEY.match(key) else "of that name"
