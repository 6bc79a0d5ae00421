"""spec.providers: the document's side of the vendors' settings, and the providers' own
validation of a document.

A policy keeps settings as texts (`Connection.settings`), already validated here: a list is
joined by newlines, labels are `key=value` pairs joined by commas. policy/vendors declares
the settings themselves.

Only a provider knows which of its settings are consistent, so some mistakes come from outside this
package. They are collected before the document is known to be valid, because otherwise a refused
secret would hide them until the next try. A mistake that is already reported causes no second one:
a setting that could not be read reaches the provider as it was written, and any further mistake
about the same setting is omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import (
    Diagnostics,
    Mapping,
    Node,
    Path,
    Scalar,
    Sequence,
    closest,
)
from chalicelib.policy.options import OptionValues
from chalicelib.policy.schema import Section, entries_of, read_section, section_form, text_of
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.group_policy import GroupPolicy, known_provider
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.value_types import BOOLEAN, UNSET, Form, ValueType
from chalicelib.policy.vendors.alicloud import AlicloudSection
from chalicelib.policy.vendors.cherryservers import CherrySettings
from chalicelib.policy.vendors.clusterapi import CapiSection
from chalicelib.policy.vendors.exoscale import ExoscaleSettings
from chalicelib.policy.vendors.huaweicloud import CceSettings
from chalicelib.policy.vendors.settings import VendorSettings, keys_of, settings_of

SPEC: Path = ("spec",)
_GROUPS: Path = (*SPEC, "nodeGroups")

PROVIDERS: dict[str, type[VendorSettings]] = {
    settings.vendor: settings
    for settings in (AlicloudSection, CherrySettings, CapiSection, ExoscaleSettings, CceSettings)
}

Ask = Callable[[Policy], Iterable[BadInput]]
"""(policy) -> the problems that its providers report. Places are `providers.NAME.key`, or
begin with `nodeGroups`."""


class PartialPolicy(msgspec.Struct, frozen=True):
    """The sections of a document that could be read, as attribute -> value.
    None: the section is missing."""

    spec: dict[str, Any]
    kubernetes: dict[str, Any] | None
    providers: dict[str, dict[str, str]] | None
    groups: tuple[dict[str, Any], ...]
    options: OptionValues


@cache
def vendor_section(settings: type[VendorSettings]) -> Section:
    """Return the section of a document for a vendor."""
    fields = tuple(
        msgspec.structs.replace(
            setting, kind=_as_text(setting.kind), default=text_of(setting.kind, setting.default)
        )
        for setting in settings_of(settings)
    )
    return Section(fields, by_key=True)


def _as_text(kind: ValueType) -> ValueType:
    """The same values as text: as written, but always `true` and `false`."""
    if kind.keeps_text:
        return kind

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        value = kind.read(node, path, diagnostics)
        if value is UNSET or not isinstance(node, Scalar):
            return UNSET
        return str(value).lower() if isinstance(value, bool) else node.text

    return msgspec.structs.replace(
        kind, read=read, show=(lambda text: text == "true") if kind is BOOLEAN else str
    )


def providers_form() -> Form:
    """Return the JSON schema of spec.providers."""
    sections = {
        name: section_form(vendor_section(settings)) for name, settings in PROVIDERS.items()
    }
    return {
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
        "minProperties": 1,
    }


def read_providers(
    node: Node | None, path: Path, diagnostics: Diagnostics
) -> dict[str, dict[str, str]]:
    """Return provider -> settings. A provider with invalid settings is
    included with the readable ones."""
    providers: dict[str, dict[str, str]] = {}
    entries = entries_of(node, path, diagnostics)
    if entries is not None and not entries:
        diagnostics.problem(path, "names no provider", f"add one of {', '.join(PROVIDERS)}")
    for name, settings_node in (entries or {}).items():
        if name in PROVIDERS:
            section = vendor_section(PROVIDERS[name])
            providers[name] = read_section(section, settings_node, (*path, name), diagnostics) or {}
        else:
            diagnostics.problem((*path, name), "is not a provider", known_provider(name))
    return providers


def without_prices(
    providers: dict[str, dict[str, str]], *, managed: bool = False
) -> tuple[str, ...] | None:
    """Return the providers among these that do not state what their nodes cost, or are not asked;
    None where none of them does. managed: there are managed pools, which have the prices of their
    vendor's catalogue."""
    unpriced = tuple(
        name
        for name, settings in providers.items()
        if name not in PROVIDERS or not PROVIDERS[name].prices_with(settings)
    )
    return None if len(unpriced) == len(providers) and not managed else unpriced


# -- what the providers say ------------------------------------------------------------------------


def provider_mistakes(
    partial: PartialPolicy, root_node: Node, name: str, ask: Ask, diagnostics: Diagnostics
) -> tuple[BadInput, ...]:
    """Return what the providers refuse of the readable settings.

    name: the cluster's, empty where it could not be read. Call it before the
    deployment's restrictions are reported: a setting that is not permitted is readable,
    and its provider must see it.
    """
    unreadable = [
        group
        for at, group in enumerate(partial.groups)
        if diagnostics.has_problem_under((*_GROUPS, at))
    ]
    no_groups = not partial.groups and diagnostics.has_problem_under(_GROUPS)
    settings = {
        provider: _as_written(provider, readable, root_node, diagnostics)
        for provider, readable in (partial.providers or {}).items()
        # A provider is not asked where an unreadable entry of nodeGroups may be its own.
        if not no_groups
        and all(group.get("provider", provider) != provider for group in unreadable)
    }
    groups = tuple(
        GroupPolicy(**group)
        for at, group in enumerate(partial.groups)
        if not diagnostics.has_problem_under((*_GROUPS, at))
    )
    access = KubernetesAccess(**partial.kubernetes or {})
    return tuple(ask(Policy(name=name, kubernetes=access, providers=settings, node_groups=groups)))


def not_reported(
    mistakes: Iterable[BadInput], place: str, diagnostics: Diagnostics
) -> tuple[BadInput, ...]:
    """Return the mistakes about settings that are not in the report yet. place:
    the document, for messages."""
    new_mistakes = []
    for mistake in mistakes:
        path = mistake.place if mistake.place.startswith("spec.") else f"spec.{mistake.place}"
        is_path = re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", path) is not None
        if not (is_path and diagnostics.has_problem_under(tuple(path.split(".")))):
            new_mistakes.append(BadInput(f"{place}: {path}", mistake.problem, mistake.remedy))
    return tuple(new_mistakes)


def _as_written(
    provider: str, readable: dict[str, str], root_node: Node, diagnostics: Diagnostics
) -> dict[str, str]:
    """Return the readable settings, and the others as text; a misspelt key
    counts as the intended one."""
    path: Path = (*SPEC, "providers", provider)
    if not diagnostics.has_problem_under(path):
        return readable
    node: Node | None = root_node
    for part in path:
        entries = node.entries if isinstance(node, Mapping) else ()
        node = next((value for key, value in entries if key.text == part), None)
    keys = keys_of(PROVIDERS[provider])
    texts = dict(readable)
    for key, value in node.entries if isinstance(node, Mapping) else ():
        intended = key.text if key.text in keys else closest(key.text, keys)
        values = value.items if isinstance(value, Sequence) else (value,)
        scalars = [item for item in values if isinstance(item, Scalar)]
        if intended and len(scalars) == len(values):
            texts.setdefault(intended, "\n".join(item.text for item in scalars))
    return texts
