"""Describes the pools' definitions in a cloud-config of Cherry Servers.

The file stays a secret, so that its mistakes are not visible in the policy. The report names them before a server is
bought. It has no value of cloudinit and of keys: the reader of the input leaves them out.
"""

from __future__ import annotations

import re

import msgspec

from chalicelib.command.importers.autoscaler_input import FileMount
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.placeholders import remedy_for
from chalicelib.command.importers.provider_source import Source
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.diagnostics import closest

DEFAULT = "default"
_HEADER = re.compile(r'\s*\[\s*([A-Za-z]{1,40})\s*(?:"([^"\n]{1,100})")?\s*\]\s*\Z')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]{0,60})\s*=\s*(.{0,200})\Z")
_FIELD = re.compile(r"\{\{-?\s*\.(?:ClusterName|NodeGroup|RandString8)\s*-?\}\}")  # of a hostname, filled in per server
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


class Pool(msgspec.Struct):
    """One section. lines: key -> (value, line)."""

    title: str
    name: str
    line: int
    settings: dict[str, tuple[str, int]] = {}


def describe_cloud_config(source: Source, path: str, draft: Draft) -> None:
    """Add rows about the sections of the cloud-config that is mounted at a path, if the input has its text."""
    mount = _mounted(source, path)
    if mount is None or mount.text is None:
        draft.row("", "cloud-config", Verdict.TOLD, "", "its text is not in the input, so that it is not checked here")
        return
    pools, common = _sections(mount.text)
    if common is not None:
        if DEFAULT in pools:
            text = f'ignored, because [nodegroupdef "{DEFAULT}"] exists'
            draft.row(mount.place, f"line {common.line}: {common.title}", Verdict.TOLD, "", text)
        else:
            pools = {DEFAULT: common, **pools}
    for pool in pools.values():
        _describe(pool, mount.place, draft)
    _compare(pools, mount.place, draft)
    for group in dict.fromkeys((each.value or "").rpartition(":")[2] for each in source.given.get("nodes", ())):
        if group and group not in pools:
            text = f"has no section of its own: it is made as {DEFAULT}"
            draft.row(mount.place, f"pool {group}", Verdict.TOLD, "", text)


def names_cluster(source: Source, path: str) -> bool:
    """Return whether each section of the cloud-config that is mounted at a path names the cluster."""
    mount = _mounted(source, path)
    pools, common = _sections(mount.text) if mount is not None and mount.text is not None else ({}, None)
    sections = [*pools.values(), *([common] if common is not None and DEFAULT not in pools else [])]
    return bool(sections) and all("cluster-name" in section.settings for section in sections)


def _mounted(source: Source, path: str) -> FileMount | None:
    fits = [each for each in source.read.mounts if each.text is not None and each.path == path]
    return fits[-1] if fits else None


def _sections(text: str) -> tuple[dict[str, Pool], Pool | None]:
    """Return (pool -> section, the section [Global]). Equal sections are one, in which later values count."""
    pools: dict[str, Pool] = {}
    common: Pool | None = None
    current: Pool | None = None
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], 1):
        if header := _HEADER.match(line):
            kind, sub = header[1].lower(), header[2]
            current = None
            if kind == "global" and sub is None:
                current = common = common or Pool(line.strip(), DEFAULT, number, {})
            elif kind == "nodegroupdef" and sub and len(pools) < _MOST_SECTIONS:
                current = pools.setdefault(sub, Pool(line.strip(), sub, number, {}))
        elif current is not None and (found := _SETTING.match(line)):
            current.settings[found[1].lower()] = (found[2].strip().strip('"'), number)
    return pools, common


def _describe(pool: Pool, place: str, draft: Draft) -> None:
    shown = ", ".join(f"{key} {pool.settings[key][0]}" for key in _SHOWN if key in pool.settings)
    draft.row(place, f"line {pool.line}: {pool.title}", Verdict.READ, "", shown or "no settings that are shown")
    for key, (value, line) in pool.settings.items():
        word = f"line {line}: {key}"
        if key in _HIDDEN:
            continue
        if key not in _SHOWN:
            known = _SPELLINGS.get(key) or closest(key, _SHOWN)
            text = f"is not a key of a cloud-config{f': write {known}' if known else ''}"
            draft.row(place, word, Verdict.TOLD, "", text)
        elif remedy_for(_FIELD.sub("", value) if key == "hostname-pattern" else value):
            draft.row(place, word, Verdict.TOLD, "", f"{key} is {value}: a placeholder; write the real value")
    asked = ", ".join(f"{key} {pool.settings[key][0]}" for key in _INHERITED if key in pool.settings)
    if asked:
        draft.row(place, asked, Verdict.TOLD, "", "outscaler doctor asks the vendor whether they exist")


def _compare(pools: dict[str, Pool], place: str, draft: Draft) -> None:
    """Report where a pool differs from the default in a way that Cluster Autoscaler treats otherwise."""
    default = pools.get(DEFAULT)
    if default is None:
        return
    for pool in pools.values():
        if pool is default:
            continue
        absent = [key for key in _INHERITED if key in default.settings and key not in pool.settings]
        if absent:
            text = f"leaves out {', '.join(absent)}: Cluster Autoscaler sent empty values; here those of default count"
            draft.row(place, f"line {pool.line}: {pool.title}", Verdict.TOLD, "", text)
        own, common = (each.settings.get("project-id", ("", 0))[0] for each in (pool, default))
        if own and own != common:
            text = "differs from that of default, which Cluster Autoscaler used for every pool; here it counts"
            draft.row(place, f"line {pool.settings['project-id'][1]}: project-id", Verdict.TOLD, "", text)
