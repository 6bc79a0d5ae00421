"""Makes a policy document of Cluster Autoscaler's configuration, with one row of the report per word of the input.

The document is data and not a Policy, because it states options that this version only accepts, and defaults that the
author wrote.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import AutoscalerInput, ImportArguments
from chalicelib.command.importers.report import Draft, Row, Verdict, store_command
from chalicelib.command.importers.translate_flags import group_arguments, translate_flags
from chalicelib.command.importers.translate_objects import report_objects
from chalicelib.command.importers.translate_providers import Source, provider_of, translate_provider
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.document import API_VERSION, KIND

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_DISCOVERED = re.compile(r"(?:^clusterapi:|,)clusterName=([^,]*)")


class Converted(msgspec.Struct, frozen=True):
    """The result. document: as data, in the order of its keys. secrets: names of those that it refers to."""

    name: str
    document: dict[str, Any]
    rows: tuple[Row, ...]
    secrets: tuple[str, ...] = ()


def convert(autoscaler: AutoscalerInput, import_arguments: ImportArguments, *, skip_unknown: bool = False) -> Converted:
    """Translate the input. The mode is shadow. Raises InputErrors with all unknown words and all mistakes."""
    draft = Draft()
    draft.row(autoscaler.place, _title(autoscaler), Verdict.READ, "", _release(autoscaler))
    for remark in autoscaler.remarks:
        draft.row(remark.place, remark.word, remark.verdict, remark.path, remark.text)
        if remark.verdict is Verdict.UNKNOWN and not skip_unknown:
            remedy = remark.text or "remove it, or give --skip-unknown"
            draft.problem(f"{remark.place}: {remark.word}"[:300], "is not a known setting", remedy)
    source = Source(
        autoscaler,
        group_arguments(autoscaler.arguments),
        "",
        import_arguments.secret_prefix,
        region=import_arguments.region,
        cluster_id=import_arguments.cluster_id,
        credentials_secret=import_arguments.credentials_secret,
    )
    source = msgspec.structs.replace(source, name=_cluster_name(source, import_arguments.name, draft))
    provider = provider_of(source, draft)
    if provider:
        translate_provider(provider, source, draft)
    translate_flags(autoscaler.arguments, autoscaler.version, draft, skip_unknown=skip_unknown)
    report_objects(source, provider, draft, inline_priorities=import_arguments.inline_priorities)
    secret = import_arguments.kubeconfig_secret or source.secret("kubeconfig")
    kubeconfig = source.last("kubeconfig")
    mounted = source.object_at(kubeconfig.value or "") if kubeconfig is not None else ""
    text = f"{secret}  {store_command(mounted, secret)}"
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
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": source.name}, "spec": spec}
    secrets = (value for key, value in draft.provider.items() if key.endswith("Secret"))
    return Converted(source.name, document, tuple(draft.rows), tuple(dict.fromkeys((secret, *secrets))))


def _title(autoscaler: AutoscalerInput) -> str:
    container = f", container {autoscaler.container}" if autoscaler.container else ""
    image = f", image {autoscaler.image}" if autoscaler.image else ""
    if not autoscaler.name:
        return f"{autoscaler.kind}{image}"
    return f"{autoscaler.kind} {autoscaler.namespace}/{autoscaler.name}{container}{image}"


def _release(autoscaler: AutoscalerInput) -> str:
    if autoscaler.version is None:
        return "no release in the image's tag: Outscaler's defaults count; --image-version says otherwise"
    return f"counts as {autoscaler.version[0]}.{autoscaler.version[1]}"


def _cluster_name(source: Source, import_name: str, draft: Draft) -> str:
    """Return --name, the name of --cluster-name, that of the only cluster of discovery, or `imported`."""
    arguments = source.arguments.get("cluster-name", ())
    for argument in arguments:
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, "" if import_name else "metadata.name")
    if import_name:
        return import_name
    if arguments:
        name = arguments[-1].value or ""
        if DNS_LABEL.match(name):
            return name
        problem = f"--cluster-name: {quote(name)} is not a DNS label"
        draft.problem(arguments[-1].place, problem, "give --name with small letters")
        return "imported"
    specs = source.arguments.get("node-group-auto-discovery", ())
    discovered = {name for spec in specs for name in _DISCOVERED.findall(spec.value or "")}
    only = discovered.pop() if len(discovered) == 1 else ""
    name = only if DNS_LABEL.match(only) else "imported"
    draft.row("", f"metadata.name: {name}", Verdict.TOLD, "metadata.name", "--name says otherwise")
    return name
