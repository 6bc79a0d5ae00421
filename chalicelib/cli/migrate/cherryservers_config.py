"""Describes the pools' definitions in a cloud-config of Cherry Servers.

The file stays a secret, so that its mistakes are not visible in the policy. The report
names them before a server is bought. It has no value of cloudinit and of keys: the reader
of the input leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from chalicelib.cli.migrate.autoscaler_input import FileMount
from chalicelib.cli.migrate.command_line import remedy_for
from chalicelib.cli.migrate.report import Draft, Verdict
from chalicelib.policy.diagnostics import closest
from chalicelib.providers.cherryservers.gcfg import readable_sections

_DEFAULT = "default"
# of a hostname, filled in per server
_FIELD = re.compile(r"\{\{-?\s*\.(?:ClusterName|NodeGroup|RandString8)\s*-?\}\}")
_SHOWN = (
    "cluster-name",
    "project-id",
    "api-server-endpoint",
    "region",
    "plan",
    "os",
    "hostname-pattern",
    "os-partition-size",
    "spot-market",
    "cpu-override",
)
_HIDDEN = ("cloudinit", "ssh-key-ids")
_SPELLINGS = {"api-server": "api-server-endpoint"}
_INHERITED = ("region", "plan", "os")  # without them no server can be bought
_MOST_SECTIONS, _MOST_LINES = 200, 5_000
_LONGEST_NAME, _LONGEST_VALUE = 100, 200


class _Section(msgspec.Struct):
    """One section. settings: key -> (value, line)."""

    title: str
    line: int
    settings: dict[str, tuple[str, int]] = {}

    def values_of(self, keys: Sequence[str]) -> str:
        """Return the settings with these keys as text."""
        return ", ".join(f"{key} {self.settings[key][0]}" for key in keys if key in self.settings)


def describe_cloud_config(
    config: FileMount | None, pool_names: Sequence[str], draft: Draft
) -> None:
    """Add rows about the sections of the cloud-config. config: None where the
    input does not have its text."""
    if config is None or config.text is None:
        draft.row(
            "",
            "cloud-config",
            Verdict.TOLD,
            "",
            "its text is not in the input, so that it is not checked here",
        )
        return
    pools, common = _sections(config.text)
    if common is not None and _DEFAULT in pools:
        text = f'ignored, because [nodegroupdef "{_DEFAULT}"] exists'
        draft.row(config.place, f"line {common.line}: {common.title}", Verdict.TOLD, "", text)
    elif common is not None:
        pools = {_DEFAULT: common, **pools}
    for section in pools.values():
        _describe(section, config.place, draft)
    default = pools.pop(_DEFAULT, None)
    for section in pools.values():
        if default is not None:
            _compare(section, default, config.place, draft)
    for name in pool_names:
        if name and name not in pools and not (name == _DEFAULT and default is not None):
            text = f"has no section of its own: it is made as {_DEFAULT}"
            draft.row(config.place, f"pool {name}", Verdict.TOLD, "", text)


def names_cluster(config: FileMount) -> bool:
    """Return whether each section of the cloud-config that counts names the cluster."""
    pools, common = _sections(config.text or "")
    sections = [
        *pools.values(),
        *([common] if common is not None and _DEFAULT not in pools else []),
    ]
    return bool(sections) and all("cluster-name" in section.settings for section in sections)


def _sections(text: str) -> tuple[dict[str, _Section], _Section | None]:
    """Return (pool -> section, the section [Global]). Equal sections are one, in
    which later values count."""
    lines = text.split("\n")[:_MOST_LINES]
    pools: dict[str, _Section] = {}
    common: _Section | None = None
    for part in readable_sections("\n".join(lines)):
        if len(part.sub or "") > _LONGEST_NAME:
            continue
        title, pool = lines[part.line - 1].strip(), part.sub
        if part.name == "global" and pool is None:
            section = common = common or _Section(title, part.line, {})
        elif part.name == "nodegroupdef" and pool and len(pools) < _MOST_SECTIONS:
            section = pools.setdefault(pool, _Section(title, part.line, {}))
        else:
            continue
        for entry in part.entries:
            if entry.value is not None and len(entry.value) <= _LONGEST_VALUE:
                section.settings[entry.key] = (entry.value, entry.line)
    return pools, common


def _describe(section: _Section, place: str, draft: Draft) -> None:
    shown = section.values_of(_SHOWN) or "no settings that are shown"
    draft.row(place, f"line {section.line}: {section.title}", Verdict.READ, "", shown)
    for key, (value, line) in section.settings.items():
        word = f"line {line}: {key}"
        if key in _HIDDEN:
            continue
        if key not in _SHOWN:
            known = _SPELLINGS.get(key) or closest(key, _SHOWN)
            text = f"is not a key of a cloud-config{f': write {known}' if known else ''}"
            draft.row(place, word, Verdict.TOLD, "", text)
        elif remedy_for(_FIELD.sub("", value) if key == "hostname-pattern" else value):
            draft.row(
                place,
                word,
                Verdict.TOLD,
                "",
                f"{key} is {value}: a placeholder; write the real value",
            )
    if names := section.values_of(_INHERITED):
        draft.row(
            place, names, Verdict.TOLD, "", "outscaler doctor asks the vendor whether they exist"
        )


def _compare(section: _Section, default: _Section, place: str, draft: Draft) -> None:
    """Report where a pool differs from the default in a way that Cluster
    Autoscaler treats otherwise."""
    absent = [key for key in _INHERITED if key in default.settings and key not in section.settings]
    if absent:
        text = (
            f"leaves out {', '.join(absent)}: Cluster Autoscaler sent empty values; here those of "
            "default count"
        )
        draft.row(place, f"line {section.line}: {section.title}", Verdict.TOLD, "", text)
    project, default_project = (
        pool.settings.get("project-id", ("", 0)) for pool in (section, default)
    )
    if project[0] and project[0] != default_project[0]:
        text = (
            "differs from that of default, which Cluster Autoscaler used for every pool; here it "
            "counts"
        )
        draft.row(place, f"line {project[1]}: project-id", Verdict.TOLD, "", text)
