"""Policy documents as files, or standard input as `-`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import Deployment, deployment_of
from chalicelib.policy.admission import Admission, Purpose
from chalicelib.policy.load import load
from chalicelib.policy.yaml_document import MAX_BYTES

STDIN = "-"


def place_of(path: str) -> str:
    """What messages call it."""
    return "stdin" if path == STDIN else path


def load_document(text: str, place: str, purpose: Purpose = Purpose.VALIDATED) -> tuple[Policy, tuple[str, ...]]:
    """The policy and the warnings, with the providers asked as well; raises BadInputs with every mistake."""
    from chalicelib.providers.registry import mistakes

    deployment = here()
    return load(
        text, place=place, admission=Admission(deployment, purpose), ask=lambda policy: mistakes(policy, deployment)
    )


def here() -> Deployment:
    """What the environment of this command says of the deployment; a command may read files of its workstation. Raises
    BadInput naming the variable that is wrong."""
    return deployment_of(os.environ, files=True)


def read_document(path: str, most: int = MAX_BYTES, what: str = "a policy") -> str:
    """The text; raises OSError for a file that cannot be read, BadInput for one that is not text, or has more bytes
    than `most`. what: what it should be, for that message."""
    if path == STDIN:
        data = sys.stdin.buffer.read(most + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)  # never more: somebody will name a disk image
    if len(data) > most:
        raise BadInput(place_of(path), f"is too large for {what}", f"keep it under {most} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{place_of(path)}:{line}", "is not UTF-8 text", "save the file as UTF-8") from None
