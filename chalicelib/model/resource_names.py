"""The names of what a deployment consists of, where they follow from one prefix.

`chalice deploy` can set environment variables to fixed texts only. It knows no table and no queue of another stack. So
a deployment by Chalice has one prefix (`outscaler-dev`), and every other name follows from it. A CloudFormation stack
generates names; its template gives each of them to the functions in a variable of its own, which takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.model.errors import BadInput

PREFIX = "OUTSCALER_PREFIX"
TABLE, POLICY_TABLE = "OUTSCALER_TABLE", "OUTSCALER_POLICY_TABLE"

_FORM = re.compile(r"outscaler-([a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?)\Z")


def prefix_of(environment: Mapping[str, str]) -> str:
    """The prefix of the deployment, "" where there is none. Raises BadInput naming the variable if it is malformed."""
    prefix = environment.get(PREFIX, "")
    if prefix and not _FORM.match(prefix):
        raise BadInput(
            f"environment: {PREFIX}",
            "is no name of a deployment",
            "write outscaler- and a stage of at most 20 lower-case letters, digits and hyphens",
        )
    return prefix


def prefix_for(stage: str) -> str:
    """The prefix of a stage's deployment. Raises BadInput for a stage whose name cannot be part of other names."""
    prefix = f"outscaler-{stage}"
    if not _FORM.match(prefix):
        raise BadInput(
            f"stage {stage}",
            "cannot be part of the names of tables and queues",
            "use at most 20 lower-case letters, digits and hyphens",
        )
    return prefix


def state_table(environment: Mapping[str, str]) -> str:
    """The name of the state table, "" where the environment says nothing of it."""
    given = environment.get(TABLE, "")
    if given:
        return given
    prefix = prefix_of(environment)
    return state_table_of(prefix) if prefix else ""


def state_table_of(prefix: str) -> str:
    """The state table of a prefix; its policy table is store.tables.policy_table_of of that."""
    return f"{prefix}-state"


def queue_name(prefix: str, queue: str) -> str:
    """The SQS name of a queue that is known here as `reconcile` or `act_<provider>`."""
    return f"{prefix}-{queue}"


def secret_prefix(prefix: str) -> str:
    """What the names of all secrets begin with in the deployment of a prefix: `outscaler/dev/` for `outscaler-dev`."""
    return f"outscaler/{prefix.removeprefix('outscaler-')}/"
