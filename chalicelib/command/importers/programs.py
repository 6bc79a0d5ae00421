"""Finds the autoscaler's program among the words of a command, behind shells, init programs and container runners."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.command.importers.command_line import Word
from chalicelib.command.importers.placeholders import remedy_for
from chalicelib.command.importers.shell_words import split_script

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_RUNNERS = frozenset({"docker", "podman", "nerdctl"})
_BEFORE = frozenset({"exec", "tini", "dumb-init", "catatonit", "nohup", "sudo", "env", "export", "nice", "$"})
_NAMED = re.compile(r"autoscaler(-(amd64|arm64|arm|s390x|ppc64le|dev))?\Z")  # images of one processor, too
_OTHERS = ("proportional-autoscaler", "pod-autoscaler", "vpa-autoscaler")  # they scale pods, not nodes
_SWITCHES = frozenset({"-d", "--detach", "--rm", "-i", "-t", "--init", "--privileged", "--read-only", "--tty"})
_CLUSTERED = re.compile(r"-[dit]{2,3}\Z")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_DEEPEST = 3  # shells inside shells
_MOST_RUNS = 100  # of one script; a second one is a mistake already


class Invocation(msgspec.Struct, frozen=True):
    """One run of the autoscaler. words: after the program's name. assigned: variables of its command line, in order.
    image: of a container runner. remarks: (place, text) on how a script was read. of_shell: whether a shell reads the
    words, so that `$(…)` is the output of a command."""

    place: str
    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    image: str = ""
    remarks: tuple[tuple[str, str, str], ...] = ()
    of_shell: bool = False


def is_autoscaler(word: str) -> bool:
    """Return whether a program, or an image with or without its tag, is named like Cluster Autoscaler."""
    base = word.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]
    found = _NAMED.search(base)
    return found is not None and not base[: found.start() + len("autoscaler")].endswith(_OTHERS)


def invocations_of_script(
    text: str, file: str, first_line: int, environment: Mapping[str, str], depth: int = 0
) -> list[Invocation]:
    """Return the runs of the autoscaler in a shell script or a bare command line, at most a hundred."""
    found: list[Invocation] = []
    assigned: list[tuple[str, Word]] = []
    for command in split_script(text, file, first_line, environment):
        assigned += command.assigned
        found += [
            msgspec.structs.replace(
                one, assigned=(*assigned, *one.assigned), remarks=command.remarks + one.remarks, of_shell=True
            )
            for one in _invocation_of_words(command.words, file, environment, depth, strict=True)
        ]
        if len(found) >= _MOST_RUNS:
            break
    return found[:_MOST_RUNS]


def invocations_of_words(words: Sequence[Word], file: str, environment: Mapping[str, str]) -> list[Invocation]:
    """Return the runs of the autoscaler in a command that is already split, such as that of a container."""
    return _invocation_of_words(words, file, environment, 0, strict=False)


def _invocation_of_words(
    words: Sequence[Word], file: str, environment: Mapping[str, str], depth: int, *, strict: bool
) -> list[Invocation]:
    """strict: only words that start programs may come before the autoscaler's."""
    if strict and words and words[0].text.startswith("--") and len(words[0].text) > 2:
        return [Invocation(words[0].place, tuple(words))]
    for at, word in enumerate(words):
        base = word.text.rsplit("/", 1)[-1]
        runs = at + 1 < len(words) and words[at + 1].text == "run"
        if is_autoscaler(word.text):
            return [Invocation(word.place, tuple(words[at + 1 :]))]
        if base in _SHELLS and depth < _DEEPEST:
            return _of_shell(words[at + 1 :], file, environment, depth)
        if base in _RUNNERS and runs:
            return _of_runner(word.place, words[at + 2 :])
        if base == "go" and runs:
            return [Invocation(word.place, _after_go_run(words[at + 2 :]))]
        if strict and base not in _BEFORE and not word.text.startswith("-"):
            break
    return []


def _after_go_run(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words after the package of `go run [FLAGS] PACKAGE`."""
    at = next((at for at, word in enumerate(words) if not word.text.startswith("-")), len(words))
    return tuple(words[at + 1 :])


def _of_shell(words: Sequence[Word], file: str, environment: Mapping[str, str], depth: int) -> list[Invocation]:
    """Read the script of `sh -c SCRIPT`, also with further options such as -ec or -o pipefail."""
    for at, word in enumerate(words[:-1]):
        if word.text.startswith("-") and not word.text.startswith("--") and word.text.endswith("c"):
            script = words[at + 1]
            _, colon, line = script.place.rpartition(":")
            first = int(line) if colon and line.isdecimal() else 0
            return invocations_of_script(script.text, file, first, environment, depth + 1)
    return []


def _of_runner(place: str, words: Sequence[Word]) -> list[Invocation]:
    """Read `docker run [OPTIONS] IMAGE [PROGRAM] [FLAGS]`."""
    left = deque(words)
    assigned: list[tuple[str, Word]] = []
    while left and left[0].text.startswith("-"):
        option = left.popleft()
        name, equals, value = option.text.partition("=")
        if not equals and option.text not in _SWITCHES and not _CLUSTERED.match(option.text) and left:
            value = left.popleft().text
        pair = _ASSIGNED.match(value)
        if name in ("-e", "--env") and pair:
            assigned.append((pair[1], Word(option.place, pair[2])))
    if not left:
        return []
    image = left.popleft().text
    if left and is_autoscaler(left[0].text):
        left.popleft()
    elif not is_autoscaler(image) and not remedy_for(image):
        return []
    return [Invocation(place, tuple(left), tuple(assigned), image)]
