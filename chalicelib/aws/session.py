"""One botocore session for all clients of a process.

A session reads botocore's tables of endpoints and partitions and finds the credentials. That costs
more than creating a client, so the clients for the table, the queues and the secrets share one
session. boto3 would add 8 to 10 % to a cold start (docs/performance.md, Cold start and size).

botocore is imported by the first call, not with this module: a command that only
reads files needs no AWS SDK.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.session import Session


_ONE_AT_A_TIME = threading.Lock()  # botocore's create_client is not thread-safe


def client(
    service: str, *, region: str | None = None, endpoint: str | None = None, **config: Any
) -> Any:
    """Return a botocore client. region, endpoint: botocore's defaults unless given.
    config: botocore's Config.

    Thread-safe. Raises BotoCoreError, for example where no region is configured.
    """
    from botocore.config import Config

    with _ONE_AT_A_TIME:
        return _session().create_client(
            service, region_name=region or None, endpoint_url=endpoint, config=Config(**config)
        )


def credentials() -> Any:
    """Return botocore's credentials, None where there are none."""
    return _session().get_credentials()


def configured_region() -> str:
    """Return the region of the environment or of the profile, "" where there is none."""
    # botocore itself reads AWS_DEFAULT_REGION only.
    return os.environ.get("AWS_REGION", "") or str(_session().get_config_variable("region") or "")


def _session() -> Session:
    variables = tuple(
        sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    )
    return _session_of(variables)


@lru_cache(maxsize=1)
def _session_of(variables: tuple[tuple[str, str], ...]) -> Session:  # noqa: ARG001 - other variables, another session
    from botocore.session import get_session

    return get_session()
