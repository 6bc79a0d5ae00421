"""Makes a policy document of Cluster Autoscaler's configuration, with one row of the
report per word of the input.

The document is data and not a Policy, because it states options that this version only accepts, and
defaults that the author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, ImportArguments
from chalicelib.cli.migrate.documents import mapping
from chalicelib.cli.migrate.report import Draft, Row, Verdict, copy_command
from chalicelib.cli.migrate.translate_flags import group_arguments, translate_flags
from chalicelib.cli.migrate.translate_providers import Source, provider_of, translate_provider
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.document import API_VERSION, KIND
from chalicelib.policy.priority_configmap import CONFIG_MAP, Rules, read

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_DISCOVERED = re.compile(r"(?:^clusterapi:|,)clusterName=([^,]*)")


class Converted(msgspec.Struct, frozen=True):
    """The result. document: as data, in the order of its keys. secrets: names of
    those that it refers to."""

    name: str
    document: dict[str, Any]
    rows: tuple[Row, ...]
    secrets: tuple[str, ...] = ()


def convert(
    autoscaler: AutoscalerInput, import_arguments: ImportArguments, *, skip_unknown: bool = False
) -> Converted:
    """Translate the input. The mode is shadow. Raises InputErrors with all
    unknown words and all mistakes."""
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
    source = msgspec.structs.replace(
        source, name=_cluster_name(source, import_arguments.name, draft)
    )
    provider = provider_of(source, draft)
    if provider:
        translate_provider(provider, source, draft)
    translate_flags(autoscaler.arguments, autoscaler.version, draft, skip_unknown=skip_unknown)
    report_objects(source, provider, draft, inline_priorities=import_arguments.inline_priorities)
    secret = import_arguments.kubeconfig_secret or source.secret("kubeconfig")
    kubeconfig = source.last("kubeconfig")
    mounted = source.object_at(kubeconfig.value or "") if kubeconfig is not None else ""
    text = f"{secret}  {copy_command(mounted, secret)}"
    draft.row(
        "", "kubeconfig of the cluster", Verdict.TO_STORE, "spec.kubernetes.kubeconfigSecret", text
    )
    draft.check()
    spec: dict[str, Any] = {"mode": "shadow"}
    if draft.scan_interval:
        spec["scanInterval"] = draft.scan_interval
    spec |= {"kubernetes": {"kubeconfigSecret": secret}, "providers": {provider: draft.provider}}
    if draft.node_groups:
        spec["nodeGroups"] = draft.node_groups
    if draft.options:
        spec["options"] = draft.options
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": source.name},
        "spec": spec,
    }
    secrets = (value for key, value in draft.provider.items() if key.endswith("Secret"))
    return Converted(
        source.name, document, tuple(draft.rows), tuple(dict.fromkeys((secret, *secrets)))
    )


def _title(autoscaler: AutoscalerInput) -> str:
    container = f", container {autoscaler.container}" if autoscaler.container else ""
    image = f", image {autoscaler.image}" if autoscaler.image else ""
    if not autoscaler.name:
        return f"{autoscaler.kind}{image}"
    return f"{autoscaler.kind} {autoscaler.namespace}/{autoscaler.name}{container}{image}"


def _release(autoscaler: AutoscalerInput) -> str:
    if autoscaler.version is None:
        return (
            "no release in the image's tag: Outscaler's defaults count; --image-version says "
            "otherwise"
        )
    return f"counts as {autoscaler.version[0]}.{autoscaler.version[1]}"


def _cluster_name(source: Source, import_name: str, draft: Draft) -> str:
    """Return --name, the name of --cluster-name, that of the only cluster of
    discovery, or `imported`."""
    arguments = source.arguments.get("cluster-name", ())
    for argument in arguments:
        draft.row(
            argument.place,
            argument.word,
            Verdict.TRANSLATED,
            "" if import_name else "metadata.name",
        )
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


_WITH_PRICES = ("cherryservers",)  # its plans state them
_GROUPS = ("MachineDeployment", "MachineSet", "MachinePool")
_MIN, _MAX = (
    "cluster-api-autoscaler-node-group-min-size",
    "cluster-api-autoscaler-node-group-max-size",
)
_OPTIONS = "autoscaling-options-"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_LITERAL = re.compile(r"(?:[A-Za-z0-9_/:@-]|\\[./-])+\Z")
_NODES = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):(\S{1,512})\Z")
_SHORT = 60


def report_objects(source: Source, provider: str, draft: Draft, *, inline_priorities: bool) -> None:
    """Add a row for each object. inline_priorities: write
    spec.nodeGroups[].priority from the ConfigMap."""
    argument = source.last("expander")
    expanders = (argument.value or "").split(",") if argument is not None else []
    has_priorities = False
    for place, document in source.autoscaler.objects:
        kind, (name, namespace) = str(document.get("kind", ""))[:_SHORT], _names(document)
        word = f"{kind} {name}".strip()
        if kind == "ConfigMap" and name == CONFIG_MAP:
            has_priorities = True
            if "priority" in expanders:
                _report_priorities(
                    source, provider, place, document, draft, inline=inline_priorities
                )
            else:
                draft.row(place, word, Verdict.NO_EFFECT, "", "--expander has no priority")
        elif kind in _GROUPS:
            _report_group(place, f"{kind} {namespace}/{name}", document, draft)
        elif kind == "CapacityBuffer":
            draft.row(
                place, word, Verdict.NOT_HERE, "spec.headroom", _nearest_headroom(name, document)
            )
        elif kind in ("ProvisioningRequest", "CapacityQuota"):
            draft.row(place, word, Verdict.NOT_HERE, "", "this version does not read such objects")
        else:
            draft.row(place, word, Verdict.READ_LIVE, "", "read from the cluster in each pass")
    if "priority" in expanders and not has_priorities:
        text = f"ConfigMap {CONFIG_MAP} is not in the input; it is read from the cluster"
        draft.row("", "--expander=priority", Verdict.TOLD, "", text)
    if "price" in expanders and provider not in _WITH_PRICES:
        text = (
            "the policy has no prices: add a line such as spec.prices: {instanceTypes: {TYPE: "
            "0.10}, cpu: 0.02}"
        )
        draft.row("", "--expander=price", Verdict.TOLD, "spec.prices", text)


def _names(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return (name, namespace)."""
    metadata = mapping(document.get("metadata"))
    return str(metadata.get("name") or "")[:253], str(metadata.get("namespace") or "default")[:253]


def _text(value: Any) -> str:
    return str(value)[:_SHORT] if isinstance(value, str | int | float) else ""


def _report_group(place: str, word: str, document: Mapping[str, Any], draft: Draft) -> None:
    """Report a group of Cluster API: its bounds, its options, and the capacity
    that an empty group lacks."""
    annotations = {
        str(key)[:253]: _text(value)
        for key, value in mapping(mapping(document.get("metadata")).get("annotations")).items()
    }
    low, high = (
        next((annotations[key] for key in annotations if key.endswith(f"/{bound}")), "")
        for bound in (_MIN, _MAX)
    )
    if not low or not high:
        text = "has no bounds in its annotations, so that it is not scaled"
        draft.row(place, word, Verdict.READ_LIVE, "", text)
        return
    options = sorted(key.partition(_OPTIONS)[2] for key in annotations if _OPTIONS in key)
    text = f"bounds {low} to {high} of its annotations" + (
        f"; options {', '.join(options)[:200]}" if options else ""
    )
    draft.row(place, word, Verdict.READ_LIVE, "", text)
    absent = [key for key in ("cpu", "memory") if f"{_CAPACITY}{key}" not in annotations]
    if low == "0" and absent:
        text = (
            f"may be empty and has no annotation {_CAPACITY}{' and '.join(absent)}: its "
            "infrastructure object must "
            "state them in status.capacity"
        )
        draft.row(place, word, Verdict.TOLD, "", text)


def _nearest_headroom(name: str, document: Mapping[str, Any]) -> str:
    """Return a text with the nearest headroom. The size of a pod is in a template,
    which is not among the input."""
    spec = mapping(document.get("spec"))
    percentage, pods = _text(spec.get("percentage")), _text(spec.get("replicas"))
    limits = {key: _text(mapping(spec.get("limits")).get(key)) for key in ("cpu", "memory")}
    if percentage and not pods:
        nearest = f"percent: {percentage}"
    elif any(limits.values()) and not pods:
        nearest = ", ".join(
            ["pods: 1", *(f"{key}: {limit}" for key, limit in limits.items() if limit)]
        )
    else:
        nearest = f"pods: {pods or '1'}, cpu: CPU, memory: MEMORY"
    template = _text(mapping(spec.get("podTemplateRef")).get("name"))
    sizes = (
        f"; CPU and MEMORY are those of pod template {template or 'of the buffer'}"
        if "CPU" in nearest
        else ""
    )
    return (
        f"this version does not read such objects; nearest: headroom: [{{name: {name}, "
        f"{nearest}}}]{sizes}"
    )


# -- priorities ------------------------------------------------------------------------------------


def _report_priorities(
    source: Source,
    provider: str,
    place: str,
    document: Mapping[str, Any],
    draft: Draft,
    *,
    inline: bool,
) -> None:
    word = f"ConfigMap {CONFIG_MAP}"
    priorities = read(
        {key: text for key, text in mapping(document.get("data")).items() if isinstance(text, str)}
    )
    if priorities.problem:
        text = (
            f"cannot be used, and the expander priority then filters nothing: {priorities.problem}"
        )
        draft.row(place, word, Verdict.NOT_HERE, "", text)
        return
    argument = source.last("namespace")
    namespace = (argument.value if argument is not None else "") or "kube-system"
    text = f"read in each pass from namespace {namespace}, of options.namespace"
    draft.row(place, word, Verdict.READ_LIVE, "", text)
    if inline:
        _write_priorities(source, provider, priorities.rules, place, draft)


def _write_priorities(
    source: Source, provider: str, rules: Rules, place: str, draft: Draft
) -> None:
    """Write an entry of spec.nodeGroups for each pattern that names one group. Its
    bounds move there from nodes.

    A cluster without the ConfigMap then keeps the order of its groups. A pattern that may name
    several groups stays in the ConfigMap, because a policy states one group per entry.
    """
    groups = {match[3] for spec in draft.provider.get("nodes", ()) if (match := _NODES.match(spec))}
    for _, document in source.autoscaler.objects:
        if document.get("kind") in _GROUPS:
            name, namespace = _names(document)
            groups.add(f"{document['kind']}/{namespace}/{name}"[:512])
    written: dict[str, int] = {}
    for priority, patterns in rules:  # the highest first, which counts for a group with several
        for pattern in patterns:
            word, group = f"{priority}: {quote(pattern)}", _literal_group(pattern, groups)
            if not group:
                text = "does not name one group literally: it works in the ConfigMap only"
                draft.row(place, word, Verdict.NOT_HERE, "", text)
            elif group in written:
                text = f"{group} has priority {written[group]} already, which counts"
                draft.row(place, word, Verdict.TOLD, "", text)
            else:
                written[group] = priority
                draft.node_groups.append(
                    _node_group(provider, group, draft) | {"priority": priority}
                )
                path = f"spec.nodeGroups[{group}].priority"
                draft.row(
                    place, word, Verdict.TRANSLATED, path, "counts once the ConfigMap is deleted"
                )


def _literal_group(pattern: str, groups: set[str]) -> str:
    """Return the one group that a pattern without special characters matches,
    empty if it may match others."""
    body = pattern.removeprefix("^").removesuffix("$")
    if not _LITERAL.match(body):
        return ""
    literal = body.replace("\\", "")
    if pattern.startswith("^") and pattern.endswith("$"):
        return literal if literal in groups or not groups else ""
    return literal if [group for group in groups if literal in group] == [literal] else ""


def _node_group(provider: str, group: str, draft: Draft) -> dict[str, Any]:
    """Return the entry of a group in spec.nodeGroups, with the bounds that it takes
    from the provider's nodes."""
    entry: dict[str, Any] = {"provider": provider, "id": group}
    nodes: list[str] = draft.provider.get("nodes", [])
    for spec in nodes:
        match = _NODES.match(spec)
        if match and match[3] == group:
            nodes.remove(spec)
            entry |= {"min": int(match[1]), "max": int(match[2])}
            break
    if not nodes:
        draft.provider.pop("nodes", None)
    return entry
