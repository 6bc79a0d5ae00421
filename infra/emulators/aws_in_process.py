"""botocore clients that moto answers in this process, without a socket. moto's own stubber is applied to these clients
only.

A scenario makes thousands of requests sequentially from one thread. Over HTTP a request takes about twice the CPU time.
The clients sign, serialize and parse as always. Their state is moto's and is shared with every server of this process
(aws_server.py).
"""

from __future__ import annotations

import threading
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import BotocoreStubber

from infra.emulators.aws import client
from infra.emulators.aws_region import REGION
from infra.emulators.moto_gaps import close

_LOCK = threading.RLock()  # moto's tables have none (aws_server.py)
_STUBBER = BotocoreStubber()
_STUBBER.enabled = True


def in_process(service: str) -> Any:
    """Return a botocore client of the emulated service."""
    close()
    made = client(service, f"https://{service}.{REGION}.amazonaws.com")
    made.meta.events.register("before-send", _answer)
    return made


def _answer(event_name: str, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
    with _LOCK:
        return _STUBBER(event_name, request)
