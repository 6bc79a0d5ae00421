"""Reads policy documents from files, or from standard input when the name is `-`."""

from __future__ import annotations

import sys
from pathlib import Path

from chalicelib.command.deployment_settings import settings_here
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Admission, Purpose
from chalicelib.policy.load import load
from chalicelib.policy.yaml_document import MAX_BYTES

STDIN = "-"


def place_of(path: str) -> str:
    """Return the name by which messages refer to the document."""
    return "stdin" if path == STDIN else path


def load_document(
    text: str, place: str, purpose: Purpose = Purpose.VALIDATED, deployment: Deployment | None = None
) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy and its warnings, including the providers' own checks; raises InputErrors with every mistake.
    deployment: what it is judged by, None for what is known without AWS."""
    from chalicelib.providers.registry import mistakes

    judge = settings_here().deployment if deployment is None else deployment
    return load(text, place=place, admission=Admission(judge, purpose), ask=lambda policy: mistakes(policy, judge))


def read_document(path: str, most: int = MAX_BYTES, what: str = "a policy") -> str:
    """Return the document's text. Raises OSError for a file that cannot be read, BadInput for one that is not text or
    has more than `most` bytes. what: what the file should be, for that message."""
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
        raise BadInput(f"{place_of(path)}:{line}", "is not UTF-8 text", "save the file as UTF-8") from None
