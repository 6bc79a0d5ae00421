"""Makes a policy document of Cluster Autoscaler's configuration, with one row of the report per word of the input.

The document is data and not a Policy, because it states options that this version only accepts, and defaults that the
author wrote.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import Argument, AutoscalerInput
from chalicelib.command.importers.build_policy import Wanted
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.provider_source import Source
from chalicelib.command.importers.report import Row, Verdict
from chalicelib.command.importers.secret_commands import store_command
from chalicelib.command.importers.translate_flags import group_arguments, translate_flags
from chalicelib.command.importers.translate_objects import tell_of_objects
from chalicelib.command.importers.translate_providers import provider_of, translate_provider
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.document import API_VERSION, KIND

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_DISCOVERED = re.compile(r"(?:^clusterapi:|,)clusterName=([^,]*)")


class Converted(msgspec.Struct, frozen=True):
    """The result. document: as data, in the order of its keys. secrets: names of those that it refers to."""

    name: str
    document: dict[str, Any]
    rows: tuple[Row, ...]
    secrets: tuple[str, ...] = ()


def convert(autoscaler: AutoscalerInput, wanted: Wanted, *, skip_unknown: bool = False) -> Converted:
    """Translate the input. The mode is shadow. Raises InputErrors with all unknown words and all mistakes."""
    draft = Draft()
    given = group_arguments(autoscaler.arguments)
    draft.row(autoscaler.place, _title(autoscaler), Verdict.READ, "", _release(autoscaler))
    _remarks(autoscaler, draft, skip_unknown=skip_unknown)
    draft.node_groups += [
        {"provider": group.provider, "id": group.id, "min": group.min, "max": group.max}
        for group in autoscaler.node_groups
    ]
    name = _name(given, wanted, draft)
    provider = provider_of(given, draft, place=autoscaler.place, kind=autoscaler.kind)
    source = Source(
        autoscaler,
        given,
        name,
        wanted.secret_prefix,
        region=wanted.region,
        cluster_id=wanted.cluster_id,
        credentials_secret=wanted.credentials_secret,
    )
    kubeconfig = translate_provider(provider, source, draft) if provider else ""
    translate_flags(autoscaler.arguments, autoscaler.version, draft, skip_unknown=skip_unknown)
    tell_of_objects(source, provider, draft, inline_priorities=wanted.inline_priorities)
    for setting in autoscaler.settings:
        draft.row(setting.place, setting.name, Verdict.NO_EFFECT, "", "not about scaling")
    secret = wanted.kubeconfig_secret or source.secret("kubeconfig")
    text = f"{secret}  {store_command(kubeconfig, secret)}"
    draft.row("", "kubeconfig of the cluster", Verdict.TO_STORE, "spec.kubernetes.kubeconfigSecret", text)
    draft.check()
    spec: dict[str, Any] = {"mode": "shadow"}
    if draft.scan_interval:
        spec["scanInterval"] = draft.scan_interval
    spec |= {"kubernetes": {"kubeconfigSecret": secret}, "providers": {provider: draft.provider}}
    if draft.node_groups:
        spec["nodeGroups"] = draft.node_groups
    if draft.options:
        spec["options"] = draft.options
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    named = (value for key, value in draft.provider.items() if key.endswith("Secret"))
    return Converted(name, document, tuple(draft.rows), tuple(dict.fromkeys((secret, *named))))


def _title(autoscaler: AutoscalerInput) -> str:
    container = f", container {autoscaler.container}" if autoscaler.container else ""
    image = f", image {autoscaler.image}" if autoscaler.image else ""
    return (
        f"{autoscaler.kind} {autoscaler.namespace}/{autoscaler.name}{container}{image}"
        if autoscaler.name
        else f"{autoscaler.kind}{image}"
    )


def _release(autoscaler: AutoscalerInput) -> str:
    if autoscaler.version is None:
        return "no release in the image's tag: Outscaler's defaults count; --image-version says otherwise"
    return f"counts as {autoscaler.version[0]}.{autoscaler.version[1]}"


def _name(given: dict[str, list[Argument]], wanted: Wanted, draft: Draft) -> str:
    found = given.get("cluster-name", [])
    for argument in found:
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, "" if wanted.name else "metadata.name")
    if wanted.name:
        return wanted.name
    if found:
        name = found[-1].value or ""
        if _LABEL.match(name):
            return name
        draft.problem(
            found[-1].place, f"--cluster-name: {quote(name)} is not a DNS label", "give --name with small letters"
        )
        return "imported"
    discovered = {
        found
        for argument in given.get("node-group-auto-discovery", [])
        for found in _DISCOVERED.findall(argument.value or "")
    }
    only = discovered.pop() if len(discovered) == 1 else ""
    name = only if _LABEL.match(only) else "imported"
    draft.row("", f"metadata.name: {name}", Verdict.TOLD, "metadata.name", "--name says otherwise")
    return name


def _remarks(autoscaler: AutoscalerInput, draft: Draft, *, skip_unknown: bool) -> None:
    """Add the rows that the reader has decided. A word that it does not know refuses the import."""
    for remark in autoscaler.remarks:
        verdict = Verdict(remark.verdict)
        draft.row(remark.place, remark.word, verdict, remark.path, remark.text)
        if verdict is Verdict.UNKNOWN and not skip_unknown:
            remedy = remark.text or "remove it, or give --skip-unknown"
            draft.problem(f"{remark.place}: {remark.word}"[:300], "is not a known setting", remedy)
