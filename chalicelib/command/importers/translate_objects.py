"""Describes the cluster's objects that are among the input: groups of Cluster API, priorities, capacity buffers.

Outscaler reads most of them from the cluster in each pass, so that nothing of them is in the policy. The report states
what counts, what is missing, and what has no counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.command.importers.autoscaler_input import Argument
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.inline_priorities import write_priorities
from chalicelib.command.importers.provider_source import Source
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.priority_configmap import CONFIG_MAP, read

_WITH_PRICES = ("cherryservers",)  # its plans state them
_GROUPS = ("MachineDeployment", "MachineSet", "MachinePool")
_MIN, _MAX = "cluster-api-autoscaler-node-group-min-size", "cluster-api-autoscaler-node-group-max-size"
_OPTIONS = "autoscaling-options-"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_SHORT = 60


def tell_of_objects(source: Source, provider: str, draft: Draft, *, inline_priorities: bool) -> None:
    """Add a row for each object. inline_priorities: write spec.nodeGroups[].priority from the ConfigMap."""
    priorities = False
    for place, document in source.read.objects:
        kind, (name, _) = str(document.get("kind", ""))[:_SHORT], _names(document)
        if kind == "ConfigMap" and name == CONFIG_MAP:
            priorities = True
            _priorities(source, provider, place, document, draft, inline=inline_priorities)
        elif kind in _GROUPS:
            _group(place, kind, document, draft)
        else:
            _OTHERS.get(kind, _read_live)(place, kind, document, draft)
    expander = _words(source.given.get("expander", ()))
    if "priority" in expander and not priorities:
        text = f"ConfigMap {CONFIG_MAP} is not in the input; it is read from the cluster"
        draft.row("", "--expander=priority", Verdict.TOLD, "", text)
    if "price" in expander and provider not in _WITH_PRICES:
        text = "the policy has no prices: add a line such as spec.prices: {instanceTypes: {TYPE: 0.10}, cpu: 0.02}"
        draft.row("", "--expander=price", Verdict.TOLD, "spec.prices", text)


def _words(found: Sequence[Argument]) -> tuple[str, ...]:
    return tuple((found[-1].value or "").split(",")) if found else ()


def _names(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return (name, namespace)."""
    metadata = _mapping(document.get("metadata"))
    return str(metadata.get("name") or "")[:253], str(metadata.get("namespace") or "default")[:253]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return str(value)[:_SHORT] if isinstance(value, str | int | float) else ""


# -- priorities ------------------------------------------------------------------------------------------------------


def _priorities(
    source: Source, provider: str, place: str, document: Mapping[str, Any], draft: Draft, *, inline: bool
) -> None:
    word = f"ConfigMap {CONFIG_MAP}"
    if "priority" not in _words(source.given.get("expander", ())):
        draft.row(place, word, Verdict.NO_EFFECT, "", "--expander has no priority")
        return
    data = {key: each for key, each in _mapping(document.get("data")).items() if isinstance(each, str)}
    found = read(data)
    if found.problem:
        text = f"cannot be used, and the expander priority then filters nothing: {found.problem}"
        draft.row(place, word, Verdict.NOT_HERE, "", text)
        return
    namespace = source.last("namespace")
    where = (namespace.value if namespace is not None else "") or "kube-system"
    draft.row(place, word, Verdict.READ_LIVE, "", f"read in each pass from namespace {where}, of options.namespace")
    if inline:
        write_priorities(source, provider, found.rules, place, draft)


# -- groups of Cluster API -------------------------------------------------------------------------------------------


def _group(place: str, kind: str, document: Mapping[str, Any], draft: Draft) -> None:
    name, namespace = _names(document)
    annotations = _mapping(_mapping(document.get("metadata")).get("annotations"))
    named = {str(key)[:253]: _text(each) for key, each in annotations.items()}
    low, high = (next((named[key] for key in named if key.endswith(f"/{end}")), "") for end in (_MIN, _MAX))
    word = f"{kind} {namespace}/{name}"
    if not low or not high:
        text = "has no bounds in its annotations, so that it is not scaled"
        draft.row(place, word, Verdict.READ_LIVE, "", text)
        return
    options = sorted(key.partition(_OPTIONS)[2] for key in named if _OPTIONS in key)
    text = f"bounds {low} to {high} of its annotations" + (f"; options {', '.join(options)[:200]}" if options else "")
    draft.row(place, word, Verdict.READ_LIVE, "", text)
    absent = [key for key in ("cpu", "memory") if f"{_CAPACITY}{key}" not in named]
    if low == "0" and absent:
        text = (
            f"may be empty and has no annotation {_CAPACITY}{' and '.join(absent)}: its infrastructure object must "
            "state them in status.capacity"
        )
        draft.row(place, word, Verdict.TOLD, "", text)


# -- objects without a counterpart -----------------------------------------------------------------------------------


def _read_live(place: str, kind: str, document: Mapping[str, Any], draft: Draft) -> None:
    draft.row(
        place, f"{kind} {_names(document)[0]}".strip(), Verdict.READ_LIVE, "", "read from the cluster in each pass"
    )


def _not_read(place: str, kind: str, document: Mapping[str, Any], draft: Draft) -> None:
    word = f"{kind} {_names(document)[0]}".strip()
    draft.row(place, word, Verdict.NOT_HERE, "", "this version does not read such objects")


def _buffer(place: str, kind: str, document: Mapping[str, Any], draft: Draft) -> None:
    """State the nearest headroom. The size of a pod is in a template, which is not among the input."""
    name = _names(document)[0]
    spec = _mapping(document.get("spec"))
    percentage, pods = _text(spec.get("percentage")), _text(spec.get("replicas"))
    limits = {key: _text(_mapping(spec.get("limits")).get(key)) for key in ("cpu", "memory")}
    if percentage and not pods:
        nearest = f"percent: {percentage}"
    elif pods:
        nearest = f"pods: {pods}, cpu: CPU, memory: MEMORY"
    elif any(limits.values()):
        nearest = ", ".join(["pods: 1", *(f"{key}: {each}" for key, each in limits.items() if each)])
    else:
        nearest = "pods: 1, cpu: CPU, memory: MEMORY"
    template = _text(_mapping(spec.get("podTemplateRef")).get("name"))
    sizes = f"; CPU and MEMORY are those of pod template {template or 'of the buffer'}" if "CPU" in nearest else ""
    text = f"this version does not read such objects; nearest: headroom: [{{name: {name}, {nearest}}}]{sizes}"
    draft.row(place, f"{kind} {name}".strip(), Verdict.NOT_HERE, "spec.headroom", text)


_OTHERS: Mapping[str, Callable[[str, str, Mapping[str, Any], Draft], None]] = {
    "CapacityBuffer": _buffer,
    "ProvisioningRequest": _not_read,
    "CapacityQuota": _not_read,
}
