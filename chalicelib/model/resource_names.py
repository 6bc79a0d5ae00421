"""Derives the names of a deployment's resources from one prefix.

`chalice deploy` can set environment variables only to fixed texts, and it does not know the tables
and queues of another stack. A deployment by Chalice therefore has one prefix (`outscaler-dev`),
from which every other name is derived. A CloudFormation stack generates names; its template passes
each of them to the functions in its own variable, which takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.model.errors import BadInput

PREFIX = "OUTSCALER_PREFIX"
TABLE, POLICY_TABLE = "OUTSCALER_TABLE", "OUTSCALER_POLICY_TABLE"
DECISIONS = "OUTSCALER_DECISIONS"
"""Where decisions are recorded: `s3://BUCKET/PREFIX`, or a folder; in
functions and for the command."""
LISTS = "OUTSCALER_LISTS"
"""Where processes share the lists of clusters: `s3://BUCKET/PREFIX`, or a folder; in functions."""
PAGE_KEY = "OUTSCALER_PAGE_KEY"
"""The name of the secret with the keys of the hosted status page."""
API_TAG = "outscaler:deployment"
"""The tag of the API of a stage of make deploy; its value is the prefix."""

_FORM = re.compile(r"outscaler-([a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?)\Z")


def prefix_of(environment: Mapping[str, str]) -> str:
    """Return the prefix of the deployment, "" if there is none. Raises BadInput naming the
    variable if it is malformed."""
    prefix = environment.get(PREFIX, "")
    if prefix and not _FORM.match(prefix):
        raise BadInput(
            f"environment: {PREFIX}",
            "is not a deployment name",
            "write outscaler- and a stage of at most 20 lower-case letters, digits and hyphens",
        )
    return prefix


def prefix_for(stage: str) -> str:
    """Return the prefix of a stage's deployment. Raises BadInput for a stage whose name
    cannot be part of other names."""
    prefix = f"outscaler-{stage}"
    if not _FORM.match(prefix):
        raise BadInput(
            f"stage {stage}",
            "cannot be part of the names of tables and queues",
            "use at most 20 lower-case letters, digits and hyphens",
        )
    return prefix


def state_table(environment: Mapping[str, str]) -> str:
    """Return the name of the state table, "" if the environment does not give it."""
    table = environment.get(TABLE, "")
    if table:
        return table
    prefix = prefix_of(environment)
    return state_table_of(prefix) if prefix else ""


def state_table_of(prefix: str) -> str:
    """Return the state table of a prefix; store.tables.policy_table_of derives
    the policy table from it."""
    return f"{prefix}-state"


def queue_name(prefix: str, queue: str) -> str:
    """Return the SQS name of a queue with the internal name `reconcile` or `act_<provider>`."""
    return f"{prefix}-{queue}"


def secret_prefix(prefix: str) -> str:
    """Return the common prefix of the names of all secrets in a deployment:
    `outscaler/dev/` for `outscaler-dev`."""
    return f"outscaler/{prefix.removeprefix('outscaler-')}/"


_STAGE_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")


def stage_prefix(table: str) -> str:
    """Return the prefix of the stage of `make deploy` that a state table belongs
    to; "" for any other table."""
    match = _STAGE_TABLE.match(table)
    return match["prefix"] if match is not None else ""
