"""Finds Cluster Autoscaler's configuration among the texts of an import.

Each form has its own reader; this module recognises the form, also for other commands, which then
name `outscaler import`. Exactly one configuration may be in the texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, Remark
from chalicelib.cli.migrate.command_line import filled_in, template_problems
from chalicelib.cli.migrate.documents import (
    DEFAULT_NAMESPACE,
    Located,
    api_group_of,
    kind_of,
    located_documents,
    mapping,
    name_of,
)
from chalicelib.cli.migrate.helm_values import is_helm_values, read_helm_values
from chalicelib.cli.migrate.report import Verdict
from chalicelib.cli.migrate.scripts import COMMAND, read_script
from chalicelib.cli.migrate.workloads import CONFIG_MAP, KINDS, SECRET, read_workload
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote
from chalicelib.reasons.words import counted

_UNIT = re.compile(r"^\[Service\][ \t]*\r?$", re.MULTILINE)
_OPENSHIFT = "autoscaling.openshift.io"
_OTHER_KINDS = frozenset({"ServiceAccount", "HorizontalNodeAutoscaler", CONFIG_MAP, SECRET})
_PRIORITIES, _STATUS = "cluster-autoscaler-priority-expander", "cluster-autoscaler-status"
_GROUPS = ".x-k8s.io"  # Cluster API, buffers, provisioning requests
_STATUS_GROUP = re.compile(
    r"^[ \t-]*[Nn]ame:[ \t]+[\"']?([^\s\"']{1,253})", re.MULTILINE
)  # of both formats of releases
_MOST_OBJECTS, _MOST_NAMED, _MOST_STATUS_TEXT, _MOST_STATUS_GROUPS = 1_000, 8, 1_000_000, 10


def read_autoscaler(
    texts: Mapping[str, str],
    *,
    workload: str,
    container: str,
    environment: Mapping[str, str],
    image_version: str,
) -> AutoscalerInput | None:
    """Return the one configuration in the texts (place -> text), or None where they have none.

    workload, container: which of several. environment: variables whose values no text has.
    image_version: the release that counts instead of the image's tag. Raises BadInput or
    InputErrors with every mistake of the texts.
    """
    configurations: list[AutoscalerInput | None] = []
    documents: list[Located] = []
    for file, text in texts.items():
        if file == COMMAND:
            script = read_script(file, text, environment, image_version)
            if script is None:
                raise BadInput(
                    COMMAND,
                    "does not run an autoscaler",
                    "write it like 'cluster-autoscaler --v=4'",
                )
        elif _UNIT.search(text):
            raise BadInput(
                file,
                "is a systemd unit, which is not read",
                "give the words of ExecStart with --command",
            )
        else:
            own, script = _documents_or_script(
                file, filled_in(text, environment), environment, image_version
            )
            documents += own
        configurations.append(script)
    configurations.append(read_workload(documents, workload, container, environment, image_version))
    namespace, slash, _ = workload.partition("/")
    configurations += [
        read_helm_values(
            document.file,
            document.content,
            document.lines,
            namespace=namespace if slash else DEFAULT_NAMESPACE,
            image_version=image_version,
        )
        for document in documents
        if is_helm_values(mapping(document.content))
    ]
    autoscalers = [autoscaler for autoscaler in configurations if autoscaler is not None]
    if len(autoscalers) > 1:
        forms = ", ".join(
            f"{autoscaler.kind} in {autoscaler.place}" for autoscaler in autoscalers[:_MOST_NAMED]
        )
        problem = f"the files have {len(autoscalers)} configurations: {forms}"
        raise BadInput(autoscalers[0].place, problem, "give one of them")
    if autoscalers:
        return _with_objects(autoscalers[0], documents)
    for document in documents:
        if _is_openshift(document):
            raise BadInput(
                document.place(),
                f"{kind_of(document.content)[:60]} of OpenShift is not read",
                (
                    "give the Deployment that its operator makes: kubectl -n openshift-machine-api "
                    "get deploy -o yaml"
                ),
            )
    return None


def form_of(file: str, text: str) -> str:
    """Return what a text is in the words of an error, such as `a Kubernetes manifest (Deployment
    kube-system/web)`; empty for another text."""
    if _UNIT.search(text):
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
        if kind in KINDS | _OTHER_KINDS or _is_openshift(document):
            return f"a Kubernetes manifest ({kind[:60]} {name_of(content)[1][:253]})"
    return ""


def _is_openshift(document: Located) -> bool:
    return api_group_of(mapping(document.content)) == _OPENSHIFT


def _documents_or_script(
    file: str, text: str, environment: Mapping[str, str], image_version: str
) -> tuple[list[Located], AutoscalerInput | None]:
    """Return the documents of a file, or the configuration of a script. A command line is
    valid YAML, too: one text."""
    try:
        documents = located_documents(file, text)
    except BadInput:
        objects = any(line.startswith(("apiVersion:", "kind:")) for line in text.splitlines())
        script = None if objects else read_script(file, text, environment, image_version)
        if script is not None:
            return [], script
        if templates := template_problems(file, text):
            raise InputErrors(tuple(templates)) from None
        raise
    if any(isinstance(document.content, Mapping) for document in documents):
        return documents, None
    return [], read_script(file, text, environment, image_version)


def _with_objects(autoscaler: AutoscalerInput, documents: Sequence[Located]) -> AutoscalerInput:
    """Add the other objects of the input."""
    remarks: list[Remark] = []
    objects: list[tuple[str, Mapping[str, Any]]] = []
    others: dict[str, None] = {}
    for document in documents:
        content = mapping(document.content)
        kind, (_, name) = kind_of(content), name_of(content)
        if api_group_of(content).endswith(_GROUPS) or (kind == CONFIG_MAP and name == _PRIORITIES):
            objects.append((document.place(), content))
        elif kind == CONFIG_MAP and name == _STATUS:
            remarks.append(_status_remark(document, autoscaler))
        elif kind and kind not in KINDS | {SECRET, CONFIG_MAP}:
            others[f"{kind} {name}"] = None
    if others:
        names = ", ".join(list(others)[:_MOST_NAMED]) + (", …" if len(others) > _MOST_NAMED else "")
        remarks.append(Remark("", names, Verdict.NO_EFFECT, "objects around the autoscaler"))
    return msgspec.structs.replace(
        autoscaler,
        remarks=(*autoscaler.remarks, *remarks),
        objects=(*autoscaler.objects, *objects[:_MOST_OBJECTS]),
    )


def _status_remark(document: Located, autoscaler: AutoscalerInput) -> Remark:
    """Return a remark that names the groups of Cluster Autoscaler's status which no
    `--nodes` of the input names."""
    status = mapping(document.content.get("data")).get("status")
    text = status[:_MOST_STATUS_TEXT] if isinstance(status, str) else ""
    groups = list(dict.fromkeys(_STATUS_GROUP.findall(text)))
    named = {
        (argument.value or "").split(":", 2)[-1]
        for argument in autoscaler.arguments
        if argument.flag == "nodes"
    }
    missing = [group for group in groups if group not in named] if named else []
    text = f"Cluster Autoscaler saw {counted(len(groups), 'group')}"
    if missing:
        text += (
            "; no --nodes names "
            f"{', '.join(quote(group) for group in missing[:_MOST_STATUS_GROUPS])}"
        )
    elif not named and groups:
        text += f": {', '.join(quote(group) for group in groups[:_MOST_STATUS_GROUPS])}"
    text += ". Outscaler writes its own status when active"
    return Remark(document.place(), f"ConfigMap {_STATUS}", Verdict.TOLD, text)
