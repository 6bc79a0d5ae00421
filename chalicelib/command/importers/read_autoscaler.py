"""Finds Cluster Autoscaler's configuration among the texts of an import.

Each form has its own reader; this module recognises the form. Exactly one configuration may be in the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import AutoscalerInput, Remark
from chalicelib.command.importers.command_input import COMMAND, read_script
from chalicelib.command.importers.commented_flags import commented_flags
from chalicelib.command.importers.helm_values import read_helm_values
from chalicelib.command.importers.input_forms import group_of, is_helm_values, is_openshift
from chalicelib.command.importers.input_objects import CONFIG_MAP, DEFAULT_NAMESPACE, SECRET, kind_of, mapping, name_of
from chalicelib.command.importers.located_documents import Located, located_documents
from chalicelib.command.importers.openshift import read_openshift
from chalicelib.command.importers.placeholders import filled_in, template_problems
from chalicelib.command.importers.report import Verdict
from chalicelib.command.importers.status_groups import STATUS, status_remark
from chalicelib.command.importers.unit_file import environment_files, is_unit, read_unit
from chalicelib.command.importers.workloads import KINDS, read_workload
from chalicelib.model.errors import BadInput, InputErrors

_PRIORITIES = "cluster-autoscaler-priority-expander"
_GROUPS = ".x-k8s.io"  # Cluster API, buffers, provisioning requests
_MOST_OBJECTS, _MOST_NAMED = 1_000, 8


def read_autoscaler(
    texts: Mapping[str, str], *, workload: str, container: str, environment: Mapping[str, str], image_version: str
) -> AutoscalerInput | None:
    """Return the one configuration in the texts (place -> text), or None where they have none.

    workload, container: which of several. environment: variables whose values no text has. image_version: the release
    that counts instead of the image's tag. Raises BadInput or InputErrors with every mistake of the texts.
    """
    found: list[AutoscalerInput] = []
    documents: list[Located] = []
    units = {file: text for file, text in texts.items() if is_unit(text)}
    consumed = {path.rsplit("/", 1)[-1] for text in units.values() for path in environment_files(text)}
    for file, written in texts.items():
        if file == COMMAND:
            read = read_script(file, written, environment, image_version)
            if read is None:
                raise BadInput(COMMAND, "does not run an autoscaler", "write it like 'cluster-autoscaler --v=4'")
            found.append(read)
        elif file in units:
            others = {name: text for name, text in texts.items() if name != file}
            _put(found, read_unit(file, written, others, environment, image_version))
        elif units and file.rsplit("/", 1)[-1] in consumed:
            continue
        else:
            own, read = _documents_or_script(file, filled_in(written, environment), environment, image_version)
            documents += own
            _put(found, read)
    objects = [(each.place(), each.content) for each in documents if is_openshift(each.content)]
    if objects:  # the operator's Deployment follows from them
        found.append(read_openshift(objects))
    else:
        _put(found, read_workload(documents, workload, container, environment, image_version))
    found += _helm(documents, workload, image_version)
    if not found:
        return None
    if len(found) > 1:
        forms = ", ".join(f"{each.kind} in {each.place}" for each in found[:_MOST_NAMED])
        raise BadInput(found[0].place, f"the files have {len(found)} configurations: {forms}", "give one of them")
    return _completed(found[0], documents, texts)


def _put(found: list[AutoscalerInput], autoscaler: AutoscalerInput | None) -> None:
    if autoscaler is not None:
        found.append(autoscaler)


def _documents_or_script(
    file: str, text: str, environment: Mapping[str, str], image_version: str
) -> tuple[list[Located], AutoscalerInput | None]:
    """Return the documents of a file, or the configuration of a script. A command line is valid YAML, too: one text."""
    try:
        documents = located_documents(file, text)
    except BadInput:
        script = None if _looks_like_objects(text) else read_script(file, text, environment, image_version)
        if script is not None:
            return [], script
        if templates := template_problems(file, text):
            raise InputErrors(tuple(templates)) from None
        raise
    if any(isinstance(each.content, Mapping) for each in documents):
        return documents, None
    return [], read_script(file, text, environment, image_version)


def _looks_like_objects(text: str) -> bool:
    return any(line.startswith(("apiVersion:", "kind:")) for line in text.splitlines())


def _helm(documents: Sequence[Located], workload: str, image_version: str) -> list[AutoscalerInput]:
    namespace, slash, _ = workload.partition("/")
    return [
        read_helm_values(
            document.file,
            document.content,
            document.own_lines(),
            namespace=namespace if slash else DEFAULT_NAMESPACE,
            image_version=image_version,
        )
        for document in documents
        if is_helm_values(document.content)
    ]


def _completed(autoscaler: AutoscalerInput, documents: Sequence[Located], texts: Mapping[str, str]) -> AutoscalerInput:
    """Add the other objects of the input, and flags in comments."""
    remarks = [remark for file, text in texts.items() for remark in commented_flags(file, text)]
    objects: list[tuple[str, Mapping[str, Any]]] = []
    others: dict[str, None] = {}
    for document in documents:
        content = mapping(document.content)
        kind, (_, name) = kind_of(content), name_of(content)
        if group_of(content).endswith(_GROUPS) or (kind == CONFIG_MAP and name == _PRIORITIES):
            objects.append((document.place(), content))
        elif kind == CONFIG_MAP and name == STATUS:
            remarks.append(status_remark(document.place(), content, autoscaler))
        elif kind and kind not in KINDS | {SECRET, CONFIG_MAP} and not is_openshift(content):
            others[f"{kind} {name}"] = None
    if others:
        named = ", ".join(list(others)[:_MOST_NAMED]) + (", …" if len(others) > _MOST_NAMED else "")
        remarks.append(Remark("", named, Verdict.NO_EFFECT, "objects around the autoscaler"))
    return msgspec.structs.replace(
        autoscaler, remarks=(*autoscaler.remarks, *remarks), objects=(*autoscaler.objects, *objects[:_MOST_OBJECTS])
    )
