"""Describes the pools' definitions in a cloud-config of Cherry Servers.

The file stays a secret, so that its mistakes are not visible in the policy. The report
names them before a server is bought. It has no value of cloudinit and of keys: the reader
of the input leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.cli.migrate.autoscaler_input import Argument, AutoscalerInput, FileMount, Remark
from chalicelib.cli.migrate.command_line import remedy_for
from chalicelib.cli.migrate.public_values import public_config
from chalicelib.cli.migrate.report import Draft, Verdict
from chalicelib.model.errors import BadInput
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
_MOST_SECTIONS, _MOST_LINES, _MOST_NAMED = 200, 5_000, 10
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


# -- the text as a file of the input ---------------------------------------------------------------

_PROVIDER, _FLAG = "cherryservers", "cloud-config"
_HEADER = re.compile(r"^[ \t]*\[[ \t]*(?:nodegroupdef[ \t]*\"|global[ \t]*\])", re.I | re.MULTILINE)
# keys of [Global] by which it is of this vendor: others have a section of the same name
_OWN_KEYS = frozenset(
    {"plan", "os", "api-server-endpoint", "hostname-pattern", "cloudinit", "ssh-key-ids"}
)


def is_cloud_config(text: str) -> bool:
    """Return whether a text is a cloud-config of Cherry Servers, as `--cloud-config` names it."""
    if _HEADER.search(text) is None or any(
        line.startswith(("apiVersion:", "kind:")) for line in text.splitlines()[:_MOST_LINES]
    ):
        return False
    lines = text.split("\n")[:_MOST_LINES]
    return any(
        (part.name == "nodegroupdef" and part.sub)
        or (part.name == "global" and any(entry.key in _OWN_KEYS for entry in part.entries))
        for part in readable_sections("\n".join(lines))
    )


def with_cloud_config(autoscaler: AutoscalerInput, texts: Mapping[str, str]) -> AutoscalerInput:
    """Return the configuration with the only one of these texts as the file that `--cloud-config`
    names. texts: by file. Raises BadInput for several."""
    if not texts:
        return autoscaler
    file, text = _only(texts)
    providers = [item.value for item in autoscaler.arguments if item.flag == "cloud-provider"]
    if providers[-1:] != [_PROVIDER]:
        remark = Remark(
            file, "cloud-config of Cherry Servers", Verdict.NO_EFFECT, "for another provider"
        )
        return msgspec.structs.replace(autoscaler, remarks=(*autoscaler.remarks, remark))
    flags = [item.value for item in autoscaler.arguments if item.flag == _FLAG and item.value]
    path = flags[-1] if flags else file
    flag = () if flags else (Argument(file, f"cloud-config {file}", _FLAG, path),)
    return msgspec.structs.replace(
        autoscaler,
        arguments=(*autoscaler.arguments, *flag),
        mounts=(*autoscaler.mounts, FileMount(file, path or "", text=public_config(text))),
    )


def read_cloud_config(texts: Mapping[str, str]) -> AutoscalerInput:
    """Return what a cloud-config says without a command line: the definitions of pools, whose
    bounds are missing. Raises BadInput for several."""
    file, text = _only(texts)
    pools = [name for name in _sections(public_config(text))[0] if name != _DEFAULT]
    named = ", ".join(f"MIN:MAX:{pool}" for pool in pools[:_MOST_NAMED]) or "MIN:MAX:POOL"
    remark = Remark(
        file,
        "no --nodes",
        Verdict.MISSING,
        f"a cloud-config has no bounds of pools: add nodes: [{named}], or import Cluster "
        "Autoscaler's command line or manifest, too",
        "spec.providers.cherryservers.nodes",
    )
    own = AutoscalerInput(
        file,
        "cloud-config of Cherry Servers",
        arguments=(Argument(file, "cloud-config of Cherry Servers", "cloud-provider", _PROVIDER),),
        remarks=(remark,),
    )
    return with_cloud_config(own, texts)


def _only(texts: Mapping[str, str]) -> tuple[str, str]:
    if len(texts) > 1:
        first, second = list(texts)[:2]
        raise BadInput(second, f"is a cloud-config, and so is {first}", "give one of them")
    (pair,) = texts.items()
    return pair


# -- its sections ----------------------------------------------------------------------------------


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
