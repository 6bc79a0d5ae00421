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
from chalicelib.cli.migrate.chart_input import read_chart
from chalicelib.cli.migrate.cherryservers_config import (
    is_cloud_config,
    read_cloud_config,
    with_cloud_config,
)
from chalicelib.cli.migrate.command_line import filled_in, template_problems
from chalicelib.cli.migrate.documents import (
    DEFAULT_NAMESPACE,
    Located,
    api_group_of,
    kind_of,
    located_documents,
    mapping,
    name_of,
    readable_documents,
)
from chalicelib.cli.migrate.foreign_forms import is_openshift, refuse_other_forms
from chalicelib.cli.migrate.helm_values import is_helm_values, read_helm_values
from chalicelib.cli.migrate.installed_charts import is_chart_object, title_of
from chalicelib.cli.migrate.report import MOST_PROBLEMS, Verdict
from chalicelib.cli.migrate.scripts import COMMAND, read_script
from chalicelib.cli.migrate.workloads import CONFIG_MAP, KINDS, SECRET, read_workload
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote
from chalicelib.reasons.words import counted

_UNIT = re.compile(r"^\[Service\][ \t]*\r?$", re.MULTILINE)
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
    mistakes: list[BadInput] = []
    cloud_configs = {file: text for file, text in texts.items() if is_cloud_config(text)}
    for file, text in texts.items():
        if file in cloud_configs:
            continue
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
            filled = filled_in(text, environment)
            of_file, script = _documents_or_script(
                file, filled, environment, image_version, mistakes
            )
            documents += of_file
        configurations.append(script)
    own = read_workload(documents, workload, container, environment, image_version)
    configurations.append(own)
    chart = None
    if own is None or not workload:
        chart = read_chart(documents, workload, environment, image_version)
    if own is not None and chart is not None and _is_made_by(documents, chart):
        own_title = f"{own.kind} {own.namespace}/{own.name}"
        text = f"{own_title} counts, which it has made and which runs"
        remark = Remark(chart.place, chart.kind, Verdict.NO_EFFECT, text)
        configurations[-1] = msgspec.structs.replace(own, remarks=(*own.remarks, remark))
        chart = None
    configurations.append(chart)
    namespace, slash, _ = workload.partition("/")
    configurations += [
        read_helm_values(
            document.file,
            document.content,
            document.places(),
            namespace=namespace if slash else DEFAULT_NAMESPACE,
            image_version=image_version,
        )
        for document in documents
        if is_helm_values(mapping(document.content)) and not _is_file_of(document, chart)
    ]
    autoscalers = [autoscaler for autoscaler in configurations if autoscaler is not None]
    if len(autoscalers) > 1:
        forms = ", ".join(
            f"{autoscaler.kind} in {autoscaler.place}" for autoscaler in autoscalers[:_MOST_NAMED]
        )
        problem = f"the files have {len(autoscalers)} configurations: {forms}"
        raise BadInput(autoscalers[0].place, problem, "give one of them")
    if autoscalers:
        autoscaler = _with_objects(autoscalers[0], documents)
        return with_cloud_config(_with_mistakes(autoscaler, mistakes), cloud_configs)
    if mistakes:
        templates = [line for file, text in texts.items() for line in template_problems(file, text)]
        raise InputErrors(tuple((templates or mistakes)[:MOST_PROBLEMS]))
    if cloud_configs:
        return read_cloud_config(cloud_configs)
    refuse_other_forms(documents)
    return None


def _is_file_of(document: Located, chart_input: AutoscalerInput | None) -> bool:
    """Return whether a chart that an object installs has taken the values of a file."""
    return chart_input is not None and any(
        remark.verdict is Verdict.READ and remark.text == f"is {document.file}"
        for remark in chart_input.remarks
    )


_RELEASE_MARKS = (
    ("annotations", "meta.helm.sh/release-name"),
    ("labels", "app.kubernetes.io/instance"),
    ("labels", "argocd.argoproj.io/instance"),
)


def _is_made_by(documents: Sequence[Located], chart_input: AutoscalerInput) -> bool:
    """Return whether a workload of the input carries the name of the chart's release."""
    for document in documents:
        content = mapping(document.content)
        metadata = mapping(content.get("metadata"))
        names = {mapping(metadata.get(part)).get(key) for part, key in _RELEASE_MARKS}
        if kind_of(content) in KINDS and chart_input.release in names:
            return True
    return False


def form_of(file: str, text: str) -> str:
    """Return what a text is in the words of an error, such as `a Kubernetes manifest (Deployment
    kube-system/web)`; empty for another text."""
    if _UNIT.search(text):
        return "a systemd unit"
    if is_cloud_config(text):
        return "a cloud-config of Cherry Servers"
    try:
        documents = located_documents(file, text)
    except BadInput:
        return ""
    for document in documents:
        content = mapping(document.content)
        kind = kind_of(content)
        if is_helm_values(content):
            return "a values file of Cluster Autoscaler's Helm chart"
        if kind in KINDS | _OTHER_KINDS or is_openshift(content) or is_chart_object(content):
            return f"a Kubernetes manifest ({kind[:60]} {name_of(content)[1][:253]})"
    return ""


def _documents_or_script(
    file: str,
    text: str,
    environment: Mapping[str, str],
    image_version: str,
    mistakes: list[BadInput],
) -> tuple[list[Located], AutoscalerInput | None]:
    """Return the documents of a file, or the configuration of a script. A command line is
    valid YAML, too: one text. mistakes: gets those of documents beside which others can be read."""
    try:
        documents = located_documents(file, text)
    except BadInput:
        readable, unread = readable_documents(file, text)
        if any(kind_of(mapping(document.content)) for document in readable):
            mistakes += unread
            return readable, None
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


def _with_mistakes(autoscaler: AutoscalerInput, mistakes: Sequence[BadInput]) -> AutoscalerInput:
    """Add the documents that could not be read. None of them has the autoscaler."""
    remarks = tuple(
        Remark(error.place, "a document", Verdict.MISSING, f"{error.problem}, and is left out")
        for error in mistakes[:MOST_PROBLEMS]
    )
    return msgspec.structs.replace(autoscaler, remarks=(*autoscaler.remarks, *remarks))


def _with_objects(autoscaler: AutoscalerInput, documents: Sequence[Located]) -> AutoscalerInput:
    """Add the other objects of the input."""
    remarks: list[Remark] = []
    objects: list[tuple[str, Mapping[str, Any]]] = []
    others: dict[str, None] = {}
    reported = {autoscaler.kind, *(remark.word for remark in autoscaler.remarks)}
    for document in documents:
        content = mapping(document.content)
        kind, (_, name) = kind_of(content), name_of(content)
        if title_of(content) in reported:
            continue
        of_cluster_api = api_group_of(content).endswith(_GROUPS) and not is_chart_object(content)
        if of_cluster_api or (kind == CONFIG_MAP and name == _PRIORITIES):
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
