"""One botocore session for all clients of a process.

A session reads botocore's tables of endpoints and partitions and finds the credentials. That costs more than making a
client, so the table's, the queues' and the secrets' clients share one session. boto3 would add its own layers to the
import and has nothing that is used here.

botocore is imported by the first call, not with this module: a command that reads files only needs no AWS SDK.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.session import Session


_ONE_AT_A_TIME = threading.Lock()  # botocore's create_client is not thread-safe


def client(service: str, *, region: str | None = None, endpoint: str | None = None, **config: Any) -> Any:
    """A botocore client. region, endpoint: as botocore finds them unless given. config: botocore's Config.

    Thread-safe. Raises BotoCoreError, for example where no region is known.
    """
    from botocore.config import Config

    found_from = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    with _ONE_AT_A_TIME:
        return _session(found_from).create_client(
            service, region_name=region or None, endpoint_url=endpoint, config=Config(**config)
        )


@lru_cache(maxsize=1)
def _session(found_from: tuple[tuple[str, str], ...]) -> Session:  # noqa: ARG001 - other variables, another session
    from botocore.session import get_session

    return get_session()
