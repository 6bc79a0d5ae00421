"""Reads the pools' definitions from upstream's file or from the policy, before inheritance.

Both forms become the same sections of texts with places, so one reader (pool_definitions.py) interprets them. An
unknown key makes the whole source fail, as in upstream: a misspelt key would select another kind of server, bought
repeatedly.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.vendors.cherryservers import DEFAULT, PLACE
from chalicelib.providers.cherryservers import gcfg

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
    """Return pool -> section from upstream's file. Raises BadInput.

    [Global] is the default unless a section has the default's name; it is then ignored."""
    found: dict[str, Written] = {}
    common: Written | None = None
    for section in gcfg.parse(text, place):
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


def _read(section: gcfg.Section, before: Written | None, place: str) -> Written:
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
