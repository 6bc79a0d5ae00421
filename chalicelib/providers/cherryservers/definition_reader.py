"""Builds and checks the definition of each pool from the written sections and their defaults.

An error in one pool's section affects that pool only; an error in a value that all pools need, such as the project,
affects them all. Where upstream sends an empty value (a pool without a plan), the default definition applies here. What
upstream silently ignores (a project set for one pool) is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import place_of
from chalicelib.policy.vendors.cherryservers import DEFAULT, PLACE, CherrySettings, cluster_name
from chalicelib.providers.cherryservers import cloud_init
from chalicelib.providers.cherryservers.config_sections import ConfiguredValue, Written, from_gcfg, from_mapping
from chalicelib.providers.cherryservers.hostnames import DEFAULT_PATTERN, hostname, letters_for
from chalicelib.providers.cherryservers.pool_definition import Definition

__all__ = ["Definition", "Definitions", "mistakes", "read_definitions"]

_LARGEST = 2**31 - 1
_MOST_CORES, _MOST_GIGABYTES = 4096, 1_000_000
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MAKES_A_DEFAULT = ("cluster-name", "cloudinit", "region", "plan", "project-id")
_NEEDED = {"plan": "e5_1620v4", "region": "eu_nord_1", "os": "ubuntu_24_04"}  # with an example value
_OF_THE_DEFAULT = ("project-id", "api-server-endpoint")


def read_definitions(settings: CherrySettings, read_secret: Callable[[str], str]) -> Definitions:
    """Return the definitions that the settings name.

    Raises BadInput for an error that affects every pool, and what read_secret raises."""
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
        """Return the definition of a pool; without its own section, the default's with the pool's name.

        Raises BadInput, which affects this pool only."""
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
        cloud_init.check(definition)
        bootstrap = self._settings.bootstrap
        if cloud_init.needs_token(definition) and not (bootstrap.create or bootstrap.secret):
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
