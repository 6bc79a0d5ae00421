"""Recognises forms of Cluster Autoscaler's configuration, so that other commands can name `outscaler import`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.command.importers.input_objects import kind_of, mapping, name_of
from chalicelib.command.importers.located_documents import located_documents
from chalicelib.command.importers.unit_file import is_unit
from chalicelib.command.importers.workloads import KINDS
from chalicelib.model.errors import BadInput

SUB_CHART = "cluster-autoscaler"
_HELM_KEYS = frozenset({"cloudProvider", "autoDiscovery", "autoscalingGroups", "extraArgs"})
_OPENSHIFT = "autoscaling.openshift.io"
_OTHERS = frozenset({"ConfigMap", "Secret", "ServiceAccount", "HorizontalNodeAutoscaler"})


def group_of(content: Any) -> str:
    """Return the API group of an object, empty for the core group."""
    version = mapping(content).get("apiVersion")
    return version.partition("/")[0] if isinstance(version, str) and "/" in version else ""


def is_helm_values(content: Any) -> bool:
    """Return whether these are values of the autoscaler's chart, or of a chart that has it below its name."""
    values = mapping(content)
    return not kind_of(values) and (_is_chart(values) or _is_chart(mapping(values.get(SUB_CHART))))


def is_openshift(content: Any) -> bool:
    """Return whether this is a ClusterAutoscaler or a MachineAutoscaler."""
    return group_of(content) == _OPENSHIFT


def form_of(file: str, text: str) -> str:
    """Return what a text is in the words of an error, such as `a Kubernetes manifest (Deployment kube-system/web)`;
    empty for another text."""
    if is_unit(text):
        return "a systemd unit"
    try:
        documents = located_documents(file, text)
    except BadInput:
        return ""
    for document in documents:
        content = mapping(document.content)
        kind = kind_of(content)
        if is_helm_values(content):
            return "a values file of Cluster Autoscaler's Helm chart"
        if kind in KINDS | _OTHERS or is_openshift(content):
            return f"a Kubernetes manifest ({kind[:60]} {name_of(content)[1][:253]})"
    return ""


def _is_chart(values: Mapping[str, Any]) -> bool:
    return not _HELM_KEYS.isdisjoint(values)
