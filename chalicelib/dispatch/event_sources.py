"""Switches a provider's function on when its first policy is stored.

Lambda polls the queue of an enabled event source mapping all the time, and AWS charges for each poll. A deployment by
`make deploy` therefore leaves the mappings of unused providers disabled. The person who stores a policy has credentials
of their own, so no function needs the right to change mappings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from chalicelib.aws import session
from chalicelib.model.resource_names import queue_name

_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")


def switch_on(table: str, providers: Iterable[str], client: Any = None) -> list[str]:
    """Enable the mappings of these providers; a line for each provider whose queue may not be read now.

    table: the state table, whose name says which deployment it is. Another name is that of a CloudFormation stack,
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
    """ "" where the function's queue is read; the function has the name of its queue."""
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
        return f"function {function} cannot be switched on ({code})"
    except BotoCoreError as error:
        return f"function {function} cannot be switched on ({type(error).__name__})"
    return ""


def _client() -> Any:
    return session.client(
        "lambda", connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}
    )
