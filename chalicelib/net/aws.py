"""One botocore session for all clients of a process.

A session reads botocore's tables of endpoints and partitions and finds the credentials. That costs more than making a
client, so the table's, the queues' and the secrets' clients share one session. boto3 would add its own layers to the
import and has nothing that is used here.

botocore is imported by the first call, not with this module: a command that reads files only needs no AWS SDK.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.session import Session


class _Shared:
    """The session of this process, and the AWS variables of the environment that it was made for."""

    lock = threading.Lock()
    session: Session | None = None
    made_for: dict[str, str] | None = None


def client(service: str, *, region: str | None = None, endpoint: str | None = None, **config: Any) -> Any:
    """A botocore client. region, endpoint: as botocore finds them unless given. config: botocore's Config.

    Thread-safe. Raises BotoCoreError, for example where no region is known.
    """
    from botocore.config import Config

    with _Shared.lock:      # botocore's create_client is not thread-safe
        return _session().create_client(
            service, region_name=region or None, endpoint_url=endpoint, config=Config(**config))


def _session() -> Session:
    """The session that is shared; a new one if the AWS variables of the environment have changed since it was made."""
    from botocore.session import get_session

    now = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    if _Shared.session is None or _Shared.made_for != now:
        _Shared.session, _Shared.made_for = get_session(), now
    return _Shared.session
