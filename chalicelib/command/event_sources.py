"""Enables a provider's function when the first policy that uses it is stored.

Lambda continuously polls the queue of an enabled event source mapping, and AWS charges for each poll. A deployment by
`make deploy` therefore leaves the mappings of unused providers disabled. The operator who stores a policy uses their
own credentials, so no function needs permission to change mappings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from chalicelib.aws import session
from chalicelib.model.resource_names import queue_name

_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")


def switch_on(table: str, providers: Iterable[str], client: Any = None) -> list[str]:
    """Enable the mappings of these providers; return a line for each provider whose queue may not be polled yet.

    table: the state table, whose name identifies the deployment. Any other name belongs to a CloudFormation stack,
    whose template enables the mappings; then nothing is done.
    """
    found = _TABLE.match(table)
    if found is None:
        return []
    problems = []
    for provider in sorted(providers):
        problem = _switch_on(queue_name(found["prefix"], f"act_{provider}"), client)
        if problem:
            problems.append(
                f"{provider}: {problem}; its operations wait in their queue until make deploy "
                f"STAGE={found['prefix'].removeprefix('outscaler-')} has run again"
            )
    return problems


def _switch_on(function: str, client: Any | None) -> str:
    """Return "" where the function's queue is polled. The function has the same name as its queue."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = client or _client()
        mappings = client.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
        if not mappings:
            return f"function {function} has no queue"
        for mapping in mappings:
            if mapping.get("State") in ("Disabled", "Disabling"):
                client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "ClientError")
        return f"function {function} cannot be enabled ({code})"
    except BotoCoreError as error:
        return f"function {function} cannot be enabled ({type(error).__name__})"
    return ""


def _client() -> Any:
    return session.client(
        "lambda", connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}
    )
