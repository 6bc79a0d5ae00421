"""Finds the autoscaler's container among the workloads of a manifest and reads its command, variables and files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import Argument, AutoscalerInput, FileMount, Remark, Variable
from chalicelib.command.importers.command_line import Word, read_command_line
from chalicelib.command.importers.container_input import read_environment, read_mounts
from chalicelib.command.importers.image_version import release_of
from chalicelib.command.importers.input_objects import InputObjects, kind_of, listed, mapping, name_of, text_of
from chalicelib.command.importers.located_documents import Located
from chalicelib.command.importers.placeholders import placeholder_problems, remedy_for
from chalicelib.command.importers.programs import Invocation, invocations_of_words, is_autoscaler
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote

_TEMPLATE = ("spec", "template", "spec")
_POD_SPECS: Mapping[str, tuple[str, ...]] = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    "Pod": ("spec",),
}
KINDS = frozenset(_POD_SPECS)
_CHOICE = re.compile(r"(?:([^/#]*)/)?([^/#]+)(?:#([0-9]{1,4}))?\Z")
_VENDOR_AUDIENCE = "sts.aliyuncs.com"
_MOST_NAMED = 10


class Candidate(msgspec.Struct, frozen=True):
    """A container that runs an autoscaler. path: of the container in the document. number: among the workloads of this
    namespace and name in the input, from 1. owner: the controller that has created the workload, or empty."""

    document: Located
    path: tuple[str, ...]
    namespace: str
    name: str
    number: int
    container: Mapping[str, Any]
    owner: str = ""

    @property
    def workload(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def container_name(self) -> str:
        """Return the container's name, or the position of one without a name."""
        return text_of(self.container.get("name")) or self.path[-1]


def candidates_in(documents: Sequence[Located]) -> list[Candidate]:
    """Return all containers that run an autoscaler, without those that another workload of the input has created."""
    found: list[Candidate] = []
    numbers: dict[tuple[str, str], int] = {}
    for document in documents:
        content = mapping(document.content)
        spec = _POD_SPECS.get(kind_of(content))
        if spec is None:
            continue
        namespace, name = name_of(content)
        containers = list(_containers(document, spec))
        owner = _owner_of(content)
        if containers and not owner:
            numbers[(namespace, name)] = numbers.get((namespace, name), 0) + 1
        for path, container in containers:
            number = numbers.get((namespace, name), 1)
            found.append(Candidate(document, path, namespace, name, number, container, owner))
    own = [each for each in found if not each.owner]
    return own or list({(each.namespace, each.owner, each.path): each for each in reversed(found)}.values())[::-1]


def choose(candidates: Sequence[Candidate], workload: str, container: str) -> tuple[Candidate | None, list[BadInput]]:
    """Return the candidate that is wanted, or the mistake that there is none, or several."""
    left = [each for each in candidates if _is_wanted(each, workload, container)]
    if len(left) == 1:
        return left[0], []
    place = (left or candidates)[0].document.place()
    shown = (left or candidates)[:_MOST_NAMED]
    names = list(dict.fromkeys(_names_of(candidates)[id(each)] for each in shown))
    if not left:
        problem = f"no autoscaler is {_wanted_text(workload, container)}"
        return None, [BadInput(place, problem, f"choose with --workload and --container among {', '.join(names)}")]
    if len({(each.workload, each.number) for each in left}) == 1:
        containers = ", ".join(each.container_name for each in shown)
        problem = f"{len(left)} containers of {left[0].workload} run an autoscaler: {containers}"
        return None, [BadInput(place, problem, "choose with --container")]
    places = ", ".join(dict.fromkeys(each.document.place() for each in shown))
    problem = f"{len({(each.workload, each.number) for each in left})} workloads run an autoscaler ({places})"
    return None, [BadInput(place, problem, "choose with --workload " + " or --workload ".join(names))]


def read_candidate(
    candidate: Candidate, objects: InputObjects, given: Mapping[str, str], image_version: str
) -> tuple[AutoscalerInput, list[BadInput]]:
    """Return the configuration, and its mistakes: placeholders, unknown variables, malformed flags."""
    document, path = candidate.document, candidate.path
    pod = _at(document.content, _POD_SPECS[kind_of(document.content)])
    environment = read_environment(document, path, candidate.container, candidate.namespace, objects, given)
    mounts, mount_remarks = read_mounts(document, path, candidate.container, pod, candidate.namespace, objects)
    words = [
        Word(word.place, environment.expanded(word.text, word.place)) for word in _words(document, path, candidate)
    ]
    invocations = invocations_of_words(words, document.file, environment.known())
    image = text_of(candidate.container.get("image"))
    problems = environment.problems
    if len(invocations) > 1:
        problems.append(BadInput(words[0].place, "the script runs several autoscalers", "leave one of them"))
    if not invocations:  # the image's entry point is the program
        invocations = [Invocation(document.place(*path), tuple(words))]
    for name, word in invocations[0].assigned:
        environment.add(Variable(word.place, name, word.text))
    line = read_command_line(invocations[0].words)
    variables = tuple(environment.variables.values())
    read = AutoscalerInput(
        document.place(),
        kind_of(document.content),
        namespace=candidate.namespace,
        name=candidate.name,
        container=candidate.container_name,
        image=image,
        version=release_of(image, image_version),
        arguments=line.arguments,
        variables=variables,
        mounts=tuple(mounts),
        remarks=(
            *_script_remarks(invocations[0]),
            *line.remarks,
            *environment.remarks,
            *mount_remarks,
            *_unused(mounts, line.arguments),
            *_switched_off(document),
        ),
    )
    problems += line.problems
    problems += placeholder_problems(line.arguments, variables, of_shell=invocations[0].of_shell)
    problems += [
        BadInput(document.place("metadata"), f"{quote(text)} is a placeholder", remedy)
        for text in (candidate.namespace, candidate.name, "" if image_version else image)
        if (remedy := remedy_for(text))
    ]
    return read, problems


def read_workload(
    documents: Sequence[Located], workload: str, container: str, given: Mapping[str, str], image_version: str
) -> AutoscalerInput | None:
    """Return the configuration of the only, or the wanted, autoscaler; None where the documents have none.

    Raises InputErrors with all mistakes of all candidates at once.
    """
    candidates = candidates_in(documents)
    if not candidates:
        return None
    objects = InputObjects(documents)
    chosen, problems = choose(candidates, workload, container)
    if chosen is None:
        for each in candidates[:_MOST_NAMED]:
            problems += read_candidate(each, objects, given, image_version)[1]
        raise InputErrors(tuple(problems))
    read, problems = read_candidate(chosen, objects, given, image_version)
    if problems:
        raise InputErrors(tuple(problems))
    return read


def _containers(located: Located, spec: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for at, each in enumerate(listed(_at(located.content, spec).get("containers"))):
        container, path = mapping(each), (*spec, "containers", str(at))
        words = [Word("", text_of(word)) for key in ("command", "args") for word in listed(container.get(key))]
        if listed(container.get("command")):
            runs = bool(invocations_of_words(words, located.file, {}))
        else:
            image = text_of(container.get("image"))  # of a registry that renames images: the container's name counts
            runs = is_autoscaler(image if "autoscaler" in image else text_of(container.get("name")))
            runs = runs or bool(invocations_of_words(words[:1], located.file, {}))
        if runs:
            yield path, container


def _words(located: Located, path: tuple[str, ...], candidate: Candidate) -> list[Word]:
    return [
        Word(located.place(*path, key, str(at)), text_of(each))
        for key in ("command", "args")
        for at, each in enumerate(listed(candidate.container.get(key)))
    ]


def _at(content: Any, path: Sequence[str]) -> Mapping[str, Any]:
    for key in path:
        content = mapping(content).get(key)
    return mapping(content)


def _owner_of(content: Mapping[str, Any]) -> str:
    """Return kind and name of the controller that has created the object. The owner of a static pod is its node."""
    owners = [mapping(each) for each in listed(mapping(content.get("metadata")).get("ownerReferences"))]
    names = (f"{kind_of(each)} {text_of(each.get('name'))}" for each in owners if kind_of(each) != "Node")
    return next(names, "")


def _is_wanted(candidate: Candidate, workload: str, container: str) -> bool:
    if container and candidate.container_name != container:
        return False
    if not workload:
        return True
    found = _CHOICE.match(workload)
    if found is None:
        raise BadInput(
            "--workload", f"{quote(workload)} is not NAMESPACE/NAME", "write it like kube-system/autoscaler#2"
        )
    return (
        found[1] in (None, candidate.namespace)
        and found[2] == candidate.name
        and found[3] in (None, str(candidate.number))
    )


def _names_of(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return what --workload takes for each candidate, by its identity: with a number where a name is not unique."""
    most: dict[str, int] = {}
    for each in candidates:
        most[each.workload] = max(most.get(each.workload, 0), each.number)
    return {
        id(each): f"{each.workload}#{each.number}" if most[each.workload] > 1 else each.workload for each in candidates
    }


def _wanted_text(workload: str, container: str) -> str:
    parts = (f"--workload {workload}" if workload else "", f"--container {container}" if container else "")
    return quote(" ".join(filter(None, parts)))


def _switched_off(located: Located) -> Iterator[Remark]:
    replicas = mapping(mapping(located.content).get("spec")).get("replicas")
    if replicas == 0 and replicas is not False:
        yield Remark(located.place("spec", "replicas"), "replicas: 0", Verdict.TOLD, "the autoscaler does not run")


def _unused(mounts: Sequence[FileMount], arguments: Sequence[Argument]) -> Iterator[Remark]:
    """Tell of files that no flag names. A token for the vendor's API is translated with the variable that names it."""
    values = [each.value for each in arguments if each.value]
    told: set[str] = set()
    for mount in mounts:
        used = any(value.startswith(mount.path) for value in values) or mount.audience == _VENDOR_AUDIENCE
        word = f"file {quote(mount.path)}"
        if not used and word not in told:
            told.add(word)
            yield Remark(mount.place, word, Verdict.NO_EFFECT, "no flag of the autoscaler names it")


def _script_remarks(invocation: Invocation) -> tuple[Remark, ...]:
    return tuple(Remark(place, word, Verdict.TOLD, text) for place, word, text in invocation.remarks)
