"""Finds the autoscaler's container among the workloads of a manifest; reads its command, variables
and files as the kubelet provides them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import (
    Argument,
    AutoscalerInput,
    FileMount,
    Remark,
    Variable,
    VariableOrigin,
)
from chalicelib.cli.migrate.command_line import (
    Word,
    placeholder_problems,
    read_command_line,
    remedy_for,
)
from chalicelib.cli.migrate.documents import Located, kind_of, listed, mapping, name_of, text_of
from chalicelib.cli.migrate.flag_table import release_of
from chalicelib.cli.migrate.public_values import public_config, secret_text, secret_value
from chalicelib.cli.migrate.report import Verdict
from chalicelib.cli.migrate.scripts import (
    Environment,
    Invocation,
    invocations_of_script,
    invocations_of_words,
    is_autoscaler,
    is_shell,
)
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
_TEMPLATE = ("spec", "template", "spec")
_POD_SPECS: Mapping[str, tuple[str, ...]] = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    "Pod": ("spec",),
}
KINDS = frozenset(_POD_SPECS)
_CHOICE = re.compile(r"(?:([^/#]*)/)?([^/#]+)(?:#([0-9]{1,4}))?\Z")
_NAME_LABELS = ("app.kubernetes.io/name", "app", "k8s-app")
_VENDOR_AUDIENCE = "sts.aliyuncs.com"
_MOST_NAMED = 10
_IN_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")


class Candidate(msgspec.Struct, frozen=True):
    """A container that runs an autoscaler. path: of the container in the document. number: among
    the workloads of this namespace and name in the input, from 1. owner: the controller that has
    created the workload, or empty."""

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


def read_workload(
    documents: Sequence[Located],
    workload: str,
    container: str,
    values: Mapping[str, str],
    image_version: str,
) -> AutoscalerInput | None:
    """Return the configuration of the only, or the wanted, autoscaler; None where
    the documents have none.

    values: of --env. Raises InputErrors with all mistakes of all candidates at once.
    """
    candidates = _candidates(documents)
    if not candidates:
        return None
    objects = InputObjects(documents)
    chosen, problems = _choose(candidates, workload, container)
    if chosen is None:
        for candidate in candidates[:_MOST_NAMED]:
            problems += _read_candidate(candidate, objects, values, image_version)[1]
        raise InputErrors(tuple(problems))
    autoscaler, problems = _read_candidate(chosen, objects, values, image_version)
    if problems:
        raise InputErrors(tuple(problems))
    return autoscaler


# -- the container ---------------------------------------------------------------------------------


def _candidates(documents: Sequence[Located]) -> list[Candidate]:
    """Return all containers that run an autoscaler, without those that another workload
    of the input has created."""
    candidates: list[Candidate] = []
    numbers: dict[tuple[str, str], int] = {}
    for document in documents:
        content = mapping(document.content)
        spec = _POD_SPECS.get(kind_of(content))
        if spec is None:
            continue
        namespace, name = name_of(content)
        containers = list(_autoscaler_containers(document, spec))
        owner = _owner_of(content)
        if containers and not owner:
            numbers[(namespace, name)] = numbers.get((namespace, name), 0) + 1
        number = numbers.get((namespace, name), 1)
        candidates += [
            Candidate(document, path, namespace, name, number, container, owner)
            for path, container in containers
        ]
    owners = [candidate for candidate in candidates if not candidate.owner]
    by_owner = {
        (candidate.namespace, candidate.owner, candidate.path): candidate
        for candidate in reversed(candidates)
    }
    return owners or list(by_owner.values())[::-1]


def _autoscaler_containers(
    document: Located, spec: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    containers = listed(_value_at(document.content, spec).get("containers"))
    for at, entry in enumerate(containers):
        container, path = mapping(entry), (*spec, "containers", str(at))
        words = [
            Word("", text_of(word))
            for key in ("command", "args")
            for word in listed(container.get(key))
        ]
        if listed(container.get("command")):
            runs = bool(invocations_of_words(words, document.file, {}))
            runs = runs or _starts_by_script(container, words)
        else:
            # of a registry that renames images: the container's name counts
            image = text_of(container.get("image"))
            runs = is_autoscaler(image if "autoscaler" in image else text_of(container.get("name")))
            runs = runs or bool(invocations_of_words(words[:1], document.file, {}))
            runs = runs or (len(containers) == 1 and _is_labelled(document, spec))
        if runs:
            yield path, container


def _starts_by_script(container: Mapping[str, Any], words: Sequence[Word]) -> bool:
    """Return whether a container of the autoscaler starts a shell, whose script says the rest."""
    names = (text_of(container.get("image")), text_of(container.get("name")))
    of_shell = bool(listed(container.get("command"))) and any(is_shell(word.text) for word in words)
    return of_shell and any(map(is_autoscaler, names))


def _runs_of_mounted_script(
    words: Sequence[Word], mounts: Sequence[FileMount], environment: Mapping[str, str]
) -> list[Invocation]:
    """Return the runs in a script of a ConfigMap that a shell starts by its path."""
    texts = {mount.path: mount for mount in mounts if mount.text is not None}
    for at, word in enumerate(words):
        mount = texts.get(word.text)
        if mount is not None and mount.text:
            arguments = words[at + 1 :]
            return invocations_of_script(
                mount.text, mount.place, 0, environment, positional=arguments
            )
    return []


def _unread_script(document: Located, path: tuple[str, ...], container: str) -> BadInput:
    kind, (namespace, name) = kind_of(document.content), name_of(document.content)
    command = (
        f"kubectl -n {namespace} exec {kind.lower()}/{name} -c {container or 'NAME'} -- cat "
        "/proc/1/cmdline | tr '\\0' ' '"
    )
    if not all(map(_IN_COMMAND.match, (namespace, name, container))):
        command = "kubectl exec"
    return BadInput(
        document.place(*path, "command"),
        f"the script of container {quote(container)} does not show the autoscaler's flags",
        f"give its words with --command; what runs: {command}",
    )


def _is_labelled(document: Located, spec: tuple[str, ...]) -> bool:
    """Return whether labels of a workload or of its pods name the autoscaler, as those of its chart
    do. A mirror may have renamed the image, and a chart names the workload after its release."""
    places = (("metadata", "labels"), (*spec[:-1], "metadata", "labels"))
    labels = [_value_at(document.content, place) for place in places]
    return any(is_autoscaler(text_of(own.get(key))) for own in labels for key in _NAME_LABELS)


def _value_at(content: Any, path: Sequence[str]) -> Mapping[str, Any]:
    for key in path:
        content = mapping(content).get(key)
    return mapping(content)


def _owner_of(content: Mapping[str, Any]) -> str:
    """Return kind and name of the controller that has created the object. The owner of
    a static pod is its node."""
    owners = [
        mapping(owner) for owner in listed(mapping(content.get("metadata")).get("ownerReferences"))
    ]
    names = (
        f"{kind_of(owner)} {text_of(owner.get('name'))}"
        for owner in owners
        if kind_of(owner) != "Node"
    )
    return next(names, "")


def _choose(
    candidates: Sequence[Candidate], workload: str, container: str
) -> tuple[Candidate | None, list[BadInput]]:
    """Return the candidate that is wanted, or the mistake that there is none, or several."""
    matching = [candidate for candidate in candidates if _is_wanted(candidate, workload, container)]
    if len(matching) == 1:
        return matching[0], []
    shown = (matching or candidates)[:_MOST_NAMED]
    place = shown[0].document.place()
    highest: dict[str, int] = {}
    for candidate in candidates:
        highest[candidate.workload] = max(highest.get(candidate.workload, 0), candidate.number)
    names = [
        f"{candidate.workload}#{candidate.number}"
        if highest[candidate.workload] > 1
        else candidate.workload
        for candidate in shown
    ]
    names = list(dict.fromkeys(names))
    if not matching:
        parts = (
            f"--workload {workload}" if workload else "",
            f"--container {container}" if container else "",
        )
        problem = f"no autoscaler is {quote(' '.join(filter(None, parts)))}"
        return None, [
            BadInput(
                place, problem, f"choose with --workload and --container among {', '.join(names)}"
            )
        ]
    workloads = {(candidate.workload, candidate.number) for candidate in matching}
    if len(workloads) == 1:
        containers = ", ".join(candidate.container_name for candidate in shown)
        problem = (
            f"{len(matching)} containers of {matching[0].workload} run an autoscaler: {containers}"
        )
        return None, [BadInput(place, problem, "choose with --container")]
    places = ", ".join(dict.fromkeys(candidate.document.place() for candidate in shown))
    problem = f"{len(workloads)} workloads run an autoscaler ({places})"
    return None, [
        BadInput(place, problem, "choose with --workload " + " or --workload ".join(names))
    ]


def _is_wanted(candidate: Candidate, workload: str, container: str) -> bool:
    if container and candidate.container_name != container:
        return False
    if not workload:
        return True
    match = _CHOICE.match(workload)
    if match is None:
        problem = f"{quote(workload)} is not NAMESPACE/NAME"
        raise BadInput("--workload", problem, "write it like kube-system/autoscaler#2")
    namespace, name, number = match.groups()
    same_number = number in (None, str(candidate.number))
    return namespace in (None, candidate.namespace) and name == candidate.name and same_number


def _read_candidate(
    candidate: Candidate, objects: InputObjects, values: Mapping[str, str], image_version: str
) -> tuple[AutoscalerInput, list[BadInput]]:
    """Return the configuration, and its mistakes: placeholders, unknown
    variables, malformed flags."""
    document, path = candidate.document, candidate.path
    environment = _read_environment(candidate, objects, values)
    mounts, mount_remarks = _read_mounts(candidate, objects)
    words = []
    for key in ("command", "args"):
        for at, entry in enumerate(listed(candidate.container.get(key))):
            place = document.place(*path, key, str(at))
            words.append(Word(place, environment.expanded(text_of(entry), place)))
    runs = invocations_of_words(words, document.file, environment.known())
    image = text_of(candidate.container.get("image"))
    problems = environment.problems
    if not runs and _starts_by_script(candidate.container, words):
        runs = _runs_of_mounted_script(words, mounts, environment.known())
        if not runs:
            problems.append(_unread_script(document, path, candidate.container_name))
            words = []
    if len(runs) > 1:
        problems.append(
            BadInput(words[0].place, "the script runs several autoscalers", "leave one of them")
        )
    # without a program among the words, the image's entry point is the program
    run = runs[0] if runs else Invocation(document.place(*path), tuple(words))
    for name, word in run.assigned:
        environment.add(Variable(word.place, name, word.text))
    line = read_command_line(run.words)
    variables = tuple(environment.variables.values())
    remarks = [
        *run.remarks,
        *line.remarks,
        *environment.remarks,
        *mount_remarks,
        *_unused(mounts, line.arguments),
    ]
    replicas = _value_at(document.content, ("spec",)).get("replicas")
    if replicas == 0 and replicas is not False:
        place = document.place("spec", "replicas")
        remarks.append(Remark(place, "replicas: 0", Verdict.TOLD, "the autoscaler does not run"))
    problems += line.problems
    problems += placeholder_problems(line.arguments, variables, of_shell=run.of_shell)
    problems += [
        BadInput(document.place("metadata"), f"{quote(text)} is a placeholder", remedy)
        for text in (candidate.namespace, candidate.name, "" if image_version else image)
        if (remedy := remedy_for(text))
    ]
    autoscaler = AutoscalerInput(
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
        remarks=tuple(remarks),
    )
    return autoscaler, problems


def _unused(mounts: Sequence[FileMount], arguments: Sequence[Argument]) -> list[Remark]:
    """Report files that no flag names. A token for the vendor's API is translated with
    the variable that names it."""
    values = [argument.value for argument in arguments if argument.value]
    remarks: dict[str, Remark] = {}
    for mount in mounts:
        if (
            not any(value.startswith(mount.path) for value in values)
            and mount.audience != _VENDOR_AUDIENCE
        ):
            word = f"file {quote(mount.path)}"
            text = "no flag of the autoscaler names it"
            remarks.setdefault(word, Remark(mount.place, word, Verdict.NO_EFFECT, text))
    return list(remarks.values())


# -- Secrets and ConfigMaps ------------------------------------------------------------------------

_MOST_KEYS = 1_000
_MOST_SOURCES, _MOST_VARIABLES, _MOST_MOUNTS, _MOST_FILES = 100, 5_000, 200, 1_000
_ORIGINS = {SECRET: VariableOrigin.OF_SECRETS, CONFIG_MAP: VariableOrigin.OF_CONFIG_MAP}
_KEY_REFERENCES = (("secretKeyRef", SECRET), ("configMapKeyRef", CONFIG_MAP))
_OBJECT_REFERENCES = (("secretRef", SECRET), ("configMapRef", CONFIG_MAP))
_VOLUMES = ((SECRET, "secret", "secretName"), (CONFIG_MAP, "configMap", "name"))


class InputObjects:
    """Values by kind, namespace/name and key. Values of Secrets are public ones only."""

    def __init__(self, documents: Iterable[Located]) -> None:
        self._objects: dict[tuple[str, str], Mapping[str, Any]] = {}
        for document in documents:
            content = mapping(document.content)
            if kind_of(content) in (SECRET, CONFIG_MAP):
                self._objects.setdefault((kind_of(content), "/".join(name_of(content))), content)

    def has(self, kind: str, name: str) -> bool:
        """Return whether the object `namespace/name` is in the input."""
        return (kind, name) in self._objects

    def keys(self, kind: str, name: str) -> list[str]:
        """Return the keys of the object."""
        content = self._objects.get((kind, name), {})
        parts = ("data", "stringData") if kind == SECRET else ("data", "binaryData")
        return list(
            dict.fromkeys(str(key) for part in parts for key in mapping(content.get(part)))
        )[:_MOST_KEYS]

    def value(self, kind: str, name: str, key: str) -> str | None:
        """Return the value of a key; of a Secret only if the key is public."""
        content = self._objects.get((kind, name))
        if content is None:
            return None
        if kind == SECRET:
            return secret_value(content, key)
        value = mapping(content.get("data")).get(key)
        return value if isinstance(value, str) else None

    def file(self, kind: str, name: str, key: str) -> str | None:
        """Return the text of a key mounted as a file; of a Secret only the public
        settings of a cloud-config."""
        content = self._objects.get((kind, name))
        if content is None or kind == CONFIG_MAP:
            return self.value(kind, name, key)
        text = secret_text(content, key)
        return public_config(text) if text is not None else None


def _read_environment(
    candidate: Candidate, objects: InputObjects, values: Mapping[str, str]
) -> Environment:
    """Read envFrom, then env, whose variables count more."""
    document, path, container = candidate.document, candidate.path, candidate.container
    environment = Environment(values)
    for at, entry in enumerate(listed(container.get("envFrom"))[:_MOST_SOURCES]):
        place, source = document.place(*path, "envFrom", str(at)), mapping(entry)
        for reference, kind in _OBJECT_REFERENCES:
            name = text_of(mapping(source.get(reference)).get("name"))
            if not name:
                continue
            name = f"{candidate.namespace}/{name}"
            if not objects.has(kind, name):
                text = (
                    f"{kind} {name} is not in the input; its variables are unknown: add it, or "
                    "give --env NAME=VALUE"
                )
                environment.remarks.append(Remark(place, "envFrom", Verdict.TOLD, text))
            for key in objects.keys(kind, name):
                variable = text_of(source.get("prefix")) + key
                environment.add(
                    Variable(
                        place, variable, objects.value(kind, name, key), _ORIGINS[kind], name, key
                    )
                )
    for at, entry in enumerate(listed(container.get("env"))[:_MOST_VARIABLES]):
        if text_of(mapping(entry).get("name")):
            place = document.place(*path, "env", str(at))
            environment.add(
                _read_variable(place, mapping(entry), candidate.namespace, objects, environment)
            )
    environment.add_values()
    return environment


def _read_variable(
    place: str,
    entry: Mapping[str, Any],
    namespace: str,
    objects: InputObjects,
    environment: Environment,
) -> Variable:
    name, source = text_of(entry.get("name")), mapping(entry.get("valueFrom"))
    for reference, kind in _KEY_REFERENCES:
        if reference in source:
            selector = mapping(source[reference])
            owner, key = (
                f"{namespace}/{text_of(selector.get('name'))}",
                text_of(selector.get("key")),
            )
            return Variable(
                place, name, objects.value(kind, owner, key), _ORIGINS[kind], owner, key
            )
    if source:
        field = text_of(mapping(source.get("fieldRef")).get("fieldPath"))
        return Variable(
            place, name, namespace if field == "metadata.namespace" else None, VariableOrigin.FIELD
        )
    problems = len(environment.problems)
    value = environment.expanded(text_of(entry.get("value")), place)
    unknown = len(environment.problems) > problems
    del environment.problems[problems:]  # a mistake only where a flag needs the value
    return Variable(place, name, None if unknown else value)


def _read_mounts(
    candidate: Candidate, objects: InputObjects
) -> tuple[list[FileMount], list[Remark]]:
    """Return the files of Secrets, ConfigMaps and tokens, and a remark for each other mount."""
    pod = _value_at(candidate.document.content, _POD_SPECS[kind_of(candidate.document.content)])
    volumes = {
        text_of(mapping(volume).get("name")): mapping(volume)
        for volume in listed(pod.get("volumes"))
    }
    mounts: list[FileMount] = []
    remarks: list[Remark] = []
    for at, entry in enumerate(listed(candidate.container.get("volumeMounts"))[:_MOST_MOUNTS]):
        place = candidate.document.place(*candidate.path, "volumeMounts", str(at))
        folder, name, file_path = (
            text_of(mapping(entry).get(key)) for key in ("mountPath", "name", "subPath")
        )
        volume_files = _volume_files(volumes.get(name, {}), candidate.namespace, objects)
        files = list(itertools.islice(volume_files, _MOST_FILES - len(mounts)))
        for file in files:
            if not file_path or file.path == file_path:
                path = folder if file_path or not file.path else f"{folder.rstrip('/')}/{file.path}"
                mounts.append(msgspec.structs.replace(file, place=place, path=path))
        if not files:
            text = "not of a Secret, ConfigMap or token"
            remarks.append(Remark(place, f"mount {quote(folder)}", Verdict.NO_EFFECT, text))
    return mounts, remarks


def _volume_files(
    volume: Mapping[str, Any], namespace: str, objects: InputObjects
) -> Iterator[FileMount]:
    for kind, field, name in _VOLUMES:
        if field in volume:
            yield from _object_files(kind, mapping(volume[field]), name, namespace, objects)
    for entry in listed(mapping(volume.get("projected")).get("sources")):
        source = mapping(entry)
        token = mapping(source.get("serviceAccountToken"))
        if token:
            yield FileMount("", text_of(token.get("path")), audience=text_of(token.get("audience")))
        for kind, field, _ in _VOLUMES:
            if field in source:
                yield from _object_files(kind, mapping(source[field]), "name", namespace, objects)


def _object_files(
    kind: str, source: Mapping[str, Any], name: str, namespace: str, objects: InputObjects
) -> Iterator[FileMount]:
    owner = f"{namespace}/{text_of(source.get(name))}"
    items = [mapping(item) for item in listed(source.get("items"))]
    paths = {text_of(item.get("key")): text_of(item.get("path")) for item in items}
    paths = paths or {key: key for key in objects.keys(kind, owner)}
    if not paths:
        yield FileMount("", "", owner)
    for key, path in paths.items():
        yield FileMount("", path, owner, key, text=objects.file(kind, owner, key))
