"""Reads policy documents from files, or from standard input when the name is `-`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from chalicelib.cli.deployment_settings import on_this_machine, settings_here
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Admission, Purpose
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.yaml_document import MAX_BYTES

STDIN = "-"


def place_of(path: str) -> str:
    """Return the name by which messages refer to the document."""
    return "stdin" if path == STDIN else path


def load_document(
    text: str,
    place: str,
    purpose: Purpose = Purpose.VALIDATED,
    deployment: Deployment | None = None,
) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy and its warnings, including the providers' own checks; raises InputErrors
    with every mistake. deployment: what it is judged by, None for what is known without AWS."""
    from chalicelib.providers.registry import mistakes

    judge = settings_here().deployment if deployment is None else deployment
    return load(
        text,
        place=place,
        admission=Admission(judge, purpose),
        ask=lambda policy: mistakes(policy, judge),
    )


def planned_policy(path: Path, place: str) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy of a file that a plan is made with, and its warnings: it may name files of
    this machine, and no secret has to exist. Raises InputErrors, OSError."""
    return load(
        read_document(str(path)),
        place=place,
        admission=Admission(on_this_machine(settings_here().deployment), Purpose.PLANNED),
    )


def read_document(path: str, most: int = MAX_BYTES, what: str = "a policy") -> str:
    """Return the document's text. Raises OSError for a file that cannot be read,
    BadInput for one that is not text or has more than `most` bytes. what: what the file
    should be, for that message."""
    if path == STDIN:
        data = sys.stdin.buffer.read(most + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)  # upper bound: the path may be a disk image
    if len(data) > most:
        raise BadInput(place_of(path), f"is too large for {what}", f"keep it under {most} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(
            f"{place_of(path)}:{line}", "is not UTF-8 text", "save the file as UTF-8"
        ) from None


MODES = ("off", "shadow", "active")
"""The document's words for the mode. What a mode permits is decided in runtime/mode_guard.py."""
_OFF = MODES[0]

_MODE = re.compile(
    r"(?m)^(?P<indent> +)mode:[ \t]*(?P<word>off|shadow|active|\"\w+\"|'\w+')(?P<rest>[ "
    r"\t]*(#.*)?)$"
)


def with_mode(text: str, mode: str) -> str:
    """Return the document with spec.mode. Comments and order stay where the document has one line
    for it; otherwise the document is written anew, without comments. Schedules stay: they may set
    another mode while they are open."""
    document = text_values(text)
    document["spec"]["mode"] = mode
    # A schedule has a mode, too: the edited text counts only if it says exactly
    # what the document should.
    for match in _MODE.finditer(text):
        start, end = match.span("word")
        edited = text[:start] + (f'"{mode}"' if mode == _OFF else mode) + text[end:]
        if text_values(edited) == document:
            return edited
    return written(document)


_NULL = "tag:yaml.org,2002:null"


class _TextLoader(yaml.SafeLoader):
    """Leaves every scalar as it is written: YAML 1.1 reads a plain `off` as false, and 0.00001
    would be written as 1.0e-05. Nothing and `null` stay None."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's, which only reads it
        first: [(tag, pattern) for tag, pattern in resolvers if tag == _NULL]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def text_values(text: str) -> Any:
    """Return a valid policy document as mappings, lists and text, to be
    changed and written again."""
    return yaml.load(text, Loader=_TextLoader)  # noqa: S506 - a SafeLoader


def written(document: Any) -> str:
    """Return such a document as YAML, without its comments. Text that YAML would take for
    another value is quoted."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
