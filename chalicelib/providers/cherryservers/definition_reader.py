"""Reads the definition of each pool from upstream's file or from the policy,
with defaults and checks.

Both forms become the same sections of texts with places, and one reader interprets them. An unknown
key makes the whole source fail, as in upstream: a misspelt key would select another kind of server,
bought repeatedly. An error in one pool's section affects that pool only; an error in a value that
all pools need, such as the project, affects them all. Where upstream sends an empty value (a pool
without a plan), the default definition applies here. What upstream silently ignores (a project set
for one pool) is refused here.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.secret import place_of
from chalicelib.policy.settings.managed_pools import Market
from chalicelib.policy.vendors.cherryservers import DEFAULT, PLACE, CherrySettings, cluster_name
from chalicelib.providers.cherryservers.gcfg import Section, parse_gcfg
from chalicelib.providers.cherryservers.pool_definition import (
    DEFAULT_PATTERN,
    Definition,
    check,
    hostname,
    letters_for,
    needs_token,
)

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
_MANAGED_PATTERN = "k8s-{{.NodeGroup}}-{{.RandString8}}"  # their names are long, and unique
_LARGEST = 2**31 - 1
_MOST_CORES, _MOST_GIGABYTES = 4096, 1_000_000
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_MAKES_A_DEFAULT = ("cluster-name", "cloudinit", "region", "plan", "project-id")
# with an example value
_NEEDED = {"plan": "e5_1620v4", "region": "eu_nord_1", "os": "ubuntu_24_04"}

# -- definitions


def read_definitions(settings: CherrySettings, read_secret: Callable[[str], str]) -> Definitions:
    """Return the definitions that the settings name. Raises BadInput for an error that affects
    every pool, and what read_secret raises."""
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
    if default is None or not (
        settings.project_id or any(default.last(key) for key in _MAKES_A_DEFAULT)
    ):
        raise BadInput(
            place,
            "has no default definition" if default is None else "has an empty default definition",
            'add [nodegroupdef "default"] (or [Global], or default under nodeGroupDefs) with '
            "project-id, "
            "region, plan and os",
        )
    return Definitions(sections, default, settings)


def mistakes(settings: CherrySettings) -> tuple[BadInput, ...]:
    """Return the errors of definitions that are written in the policy itself, for validation before
    it is applied. Definitions in a secret are not read."""
    if settings.definitions.secret:
        return ()
    try:
        definitions = read_definitions(settings, str)
    except BadInput as mistake:
        return (mistake,)
    errors: dict[str, BadInput] = {}  # an error in an inherited value is reported once
    for bounds in settings.groups:
        try:
            definitions.of(bounds.name)
        except BadInput as mistake:
            place = (
                mistake.place if mistake.place.startswith(PLACE) else f"{PLACE}: {mistake.place}"
            )
            errors.setdefault(str(mistake), BadInput(place, mistake.problem, mistake.remedy))
    return tuple(errors.values())


class Definitions:
    """The definitions of one cluster's pools. project: the number of the project of all
    servers; cluster_name: for pools that name none, may be empty. Raises BadInput for an error
    that affects every pool."""

    def __init__(
        self, sections: Mapping[str, PoolSection], default: PoolSection, settings: CherrySettings
    ) -> None:
        self._sections, self._default, self._settings = sections, default, settings
        self.project = self._project()
        name = default.last("cluster-name")
        self.cluster_name = settings.cluster_name or (
            cluster_name(name.text, name.place) if name else ""
        )

    def of(self, pool: str) -> Definition:
        """Return the definition of a pool; without its own section, the default's with the pool's
        name. Raises BadInput, which affects this pool only."""
        return self._definition(pool, self._sections.get(pool, self._default))

    def section(self, name: str) -> PoolSection:
        """Return the section of a name, `default` among them. Raises BadInput if there is none."""
        section = self._default if name == DEFAULT else self._sections.get(name)
        if section is None:
            names = ", ".join(sorted({DEFAULT, *self._sections}))
            raise BadInput(name, "is no definition of cherryservers", f"write one of {names}")
        return section

    def region(self, section: PoolSection) -> str:
        """Return the region of a section, "" if it has none."""
        return self._text(section, "region")

    def of_choice(self, pool: str, section: PoolSection, choice: MachineChoice) -> Definition:
        """Return the definition of a group of Outscaler's own: as a section says, but for its
        machines. Raises BadInput, which affects this group only."""
        changed = {
            "plan": choice.instance_type,
            "region": choice.zone,
            "spot-market": str(choice.market == Market.SPOT).lower(),
            "cpu-override": "0",
        }
        if self.cluster_name:  # own groups are found by one name of the cluster
            changed["cluster-name"] = self.cluster_name
        pattern = self._text(section, "hostname-pattern")
        if pattern in ("", DEFAULT_PATTERN):
            changed["hostname-pattern"] = _MANAGED_PATTERN
        values = {key: (ConfiguredValue(text, section.place),) for key, text in changed.items()}
        own = msgspec.structs.replace(section, values={**section.values, **values})
        return self._definition(pool, own)

    def _definition(self, pool: str, own: PoolSection) -> Definition:
        self._check_common_keys(own)
        lacking = [key for key in _NEEDED if not self._text(own, key)]
        if lacking:
            problem = f"pool {pool} has no {', no '.join(lacking)}"
            raise BadInput(own.place, problem, "add it there, or to the default definition")
        definition = Definition(
            pool=pool,
            cluster_name=self._cluster_name(own, pool),
            project_id=self.project,
            api_server_endpoint=self._text(self._default, "api-server-endpoint"),
            region=self._slug(own, "region"),
            plan=self._slug(own, "plan"),
            os=self._slug(own, "os"),
            ssh_key_ids=self._ssh_keys(own),
            cloudinit=self._text(own, "cloudinit"),
            hostname_pattern=self._text(own, "hostname-pattern") or DEFAULT_PATTERN,
            os_partition_size=self._number(own, "os-partition-size", _MOST_GIGABYTES, "60"),
            spot=self._flag(own, "spot-market"),
            cpu_override=self._number(own, "cpu-override", _MOST_CORES, "16"),
        )
        # everything that creating or finding a server needs, before one is bought
        hostname(definition, letters_for(definition.pool))
        check(definition)
        bootstrap = self._settings.bootstrap
        if needs_token(definition) and not (bootstrap.create or bootstrap.secret):
            raise BadInput(
                f"{PLACE}.bootstrapTokenSecret",
                f"is missing, and the cloudinit of pool {pool} asks for a bootstrap token",
                "name a secret with one, or set createBootstrapTokens: true",
            )
        return definition

    def _project(self) -> int:
        value, place, project = (
            self._default.last("project-id"),
            f"{PLACE}.projectId",
            self._settings.project_id,
        )
        number = _whole(value, "project-id", _LARGEST, "write it like 10001") if value else 0
        if number and project and number != project:
            problem = f"{project} differs from project-id {number} of the default definition"
            raise BadInput(place, problem, "keep one of the two")
        if not (number or project):
            raise BadInput(
                place,
                "is missing, and the default definition has no project-id",
                "write it like 10001",
            )
        return number or project

    def _check_common_keys(self, own: PoolSection) -> None:
        """Check that a pool does not override the two keys that apply to all pools."""
        endpoint = self._text(self._default, "api-server-endpoint")
        for key, common in (("project-id", str(self.project)), ("api-server-endpoint", endpoint)):
            value = own.last(key)
            text = value.text.strip() if value else ""
            if key == "project-id":
                text = text.lstrip("0")  # in upstream, 0 means none
            if value and text and text != common:
                remedy = "one cluster is in one project and behind one endpoint: take the line out"
                raise BadInput(value.place, f"{key} differs from the default definition's", remedy)

    def _cluster_name(self, own: PoolSection, pool: str) -> str:
        """Return the cluster name: the pool's own, then clusterName, then the default's,
        where upstream gives up. Upstream's order must be kept, because running servers
        carry this name in a tag."""
        value = own.last("cluster-name")
        name = cluster_name(value.text, value.place) if value else self._settings.cluster_name
        if not (name or self.cluster_name):
            raise BadInput(
                f"{PLACE}.clusterName",
                f"is missing, and pool {pool} has no cluster-name",
                "write the name that the cluster's machines bear in their tag k8s-cluster",
            )
        return name or self.cluster_name

    def _value(self, own: PoolSection, key: str) -> ConfiguredValue | None:
        return own.last(key) or self._default.last(key)

    def _text(self, own: PoolSection, key: str) -> str:
        value = self._value(own, key)
        return value.text.strip() if value else ""

    def _slug(self, own: PoolSection, key: str) -> str:
        value, text = self._value(own, key), self._text(own, key)
        if not re.fullmatch(r"[\x20-\x7e]{1,200}", text):
            raise BadInput(
                value.place if value else own.place,
                f"{key} contains special characters or is too long",
                f"write the vendor's slug, such as {_NEEDED[key]}",
            )
        return text

    def _number(self, own: PoolSection, key: str, most: int, example: str) -> int:
        remedy = f"write a whole number up to {most}, such as {example}, or 0 for none"
        value = self._value(own, key)
        return _whole(value, key, most, remedy) if value else 0

    def _flag(self, own: PoolSection, key: str) -> bool:
        value, text = self._value(own, key), self._text(own, key).lower()
        if value and text not in _TRUTH:
            raise BadInput(value.place, f"{key} is neither true nor false", "write true or false")
        return value is not None and _TRUTH[text]

    def _ssh_keys(self, own: PoolSection) -> tuple[int, ...]:
        """Return the SSH keys. A list is inherited as a whole; an
        explicitly empty list stays empty."""
        section = own if "ssh-key-ids" in own.values else self._default
        return tuple(
            _whole(
                value,
                f"ssh-key-ids: number {position}",
                _LARGEST,
                "write a key's id, one per line, like 101",
            )
            for position, value in enumerate(section.values.get("ssh-key-ids", ()), start=1)
        )


def _whole(configured: ConfiguredValue, what: str, most: int, remedy: str) -> int:
    text = configured.text.strip()
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or int(text) > most:
        raise BadInput(configured.place, f"{what} is {text[:40]!r}", remedy)
    return int(text)


# -- sections


class ConfiguredValue(msgspec.Struct, frozen=True):
    """One value and its place."""

    text: str
    place: str


class PoolSection(msgspec.Struct, frozen=True):
    """The section of one pool. values: of each key, several for a list; an
    empty tuple: explicitly none."""

    place: str
    values: dict[str, tuple[ConfiguredValue, ...]]

    def last(self, key: str) -> ConfiguredValue | None:
        """Return the effective value; None if it is not set or empty, which are equal."""
        values = self.values.get(key)
        return values[-1] if values and values[-1].text.strip() else None


def from_gcfg(text: str, place: str) -> dict[str, PoolSection]:
    """Return pool -> section from upstream's file. Raises BadInput. [Global] is the default unless
    a section has the default's name; it is then ignored."""
    pools: dict[str, PoolSection] = {}
    common: PoolSection | None = None
    for section in parse_gcfg(text, place):
        pool = section.sub or ""
        if section.name == _GLOBAL and section.sub is None:
            common = _merged(section, common, place)
        elif section.name == _DEFS:
            pools[pool] = _merged(section, pools.get(pool), place)
        else:
            problem = f"there is no section {_shown(section.name)}"
            raise BadInput(
                f"{place}: line {section.line}",
                problem,
                'the sections are [Global] and [nodegroupdef "name"]',
            )
    return pools if common is None else {DEFAULT: common, **pools}


def _merged(section: Section, earlier: PoolSection | None, place: str) -> PoolSection:
    """Merge a section into the earlier ones of the same name: a later value
    replaces, lists are joined."""
    title = section.name if section.sub is None else f'{section.name} "{section.sub}"'
    values = dict(earlier.values) if earlier else {}
    for entry in section.entries:
        where, key = f"{place}: line {entry.line}", entry.key
        if key not in KEYS:
            raise _unknown(where, key, KEYS)
        if entry.value is None:
            if key not in LISTS | FLAGS:
                raise BadInput(where, f"{key} has no value", f"write {key}=…, or take the line out")
            values[key] = (ConfiguredValue("true", where),) if key in FLAGS else ()
        else:
            before = values.get(key, ()) if key in LISTS else ()
            values[key] = (*before, ConfiguredValue(entry.value, where))
    return PoolSection(earlier.place if earlier else f"{place}: [{title}]", values)


def from_mapping(text: str, place: str = f"{PLACE}.nodeGroupDefs") -> dict[str, PoolSection]:
    """Return pool -> section from nodeGroupDefs in JSON; cloudInit becomes
    cloudinit. Raises BadInput."""
    try:
        pools = msgspec.json.decode(
            text, type=dict[str, dict[str, str | bool | int | list[str | int] | None]]
        )
    except msgspec.MsgspecError:
        remedy = "write it like {default: {region: …, plan: …, os: …}, pool2: {plan: …}}"
        raise BadInput(place, "is not a mapping of pools to keys and values", remedy) from None
    keys = {camel: key for key, camel in KEYS.items()} | {CLOUD_INIT: "cloudinit"}
    sections = {}
    for pool, fields in pools.items():
        values: dict[str, tuple[ConfiguredValue, ...]] = {}
        for camel, value in fields.items():
            where = f"{place}.{pool}.{camel}"
            if camel not in keys:
                raise _unknown(where, camel, keys)
            key = keys[camel]
            if key in values:
                raise BadInput(where, "conflicts with cloudinit", "keep one of the two")
            if isinstance(value, list) and key not in LISTS:
                raise BadInput(where, "is a list", "write one value")
            items = value if isinstance(value, list) else [value]
            texts = [
                str(item).lower() if isinstance(item, bool) else str(item)
                for item in items
                if item is not None
            ]
            if camel == CLOUD_INIT:
                texts = [base64.b64encode(text.encode()).decode() for text in texts]
            values[key] = tuple(ConfiguredValue(text, where) for text in texts)
        sections[pool] = PoolSection(f"{place}.{pool}", values)
    return sections


def _unknown(where: str, key: str, known: Mapping[str, str]) -> BadInput:
    if key in _API_SERVER:
        return BadInput(
            where,
            f"there is no key {key}",
            f"upstream's README means {_API_SERVER[key]}; write that",
        )
    similar = difflib.get_close_matches(key, known, n=1)
    remedy = f"did you mean {similar[0]}?" if similar else f"the keys are {', '.join(known)}"
    return BadInput(where, f"there is no key {_shown(key)}", remedy)


def _shown(key: str) -> str:
    """Return a name that is safe to show: part of a value that was broken over two
    lines may look like a key."""
    return key if _LIKE_A_KEY.match(key) else "of that name"
