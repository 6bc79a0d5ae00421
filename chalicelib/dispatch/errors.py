"""Errors of sending a message to a queue or of invoking another function.

OutscalerError
├── NotSent      the queue did not accept the message; nothing was changed, and a later retry is safe
└── NotInvoked   as far as is known, Lambda did not accept the invocation; the caller does the work itself
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class NotSent(OutscalerError):
    """The queue did not accept a message. code: SQS's error code, or the network error's class."""

    def __init__(self, queue: str, code: str) -> None:
        super().__init__(f"queue {queue}: message not taken ({code})")
        self.queue, self.code = queue, code


class NotInvoked(OutscalerError):
    """Another function was not invoked. code: Lambda's error code, or the network error's class."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"function {function}: not invoked ({code})")
        self.function, self.code = function, code
