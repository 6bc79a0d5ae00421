"""What can go wrong on the way into a queue, or to another function.

OutscalerError
├── NotSent      the queue did not take the message; nothing was changed, asking again later is safe
└── NotInvoked   Lambda did not take the invocation, as far as is known; the caller does the work itself
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class NotSent(OutscalerError):
    """A message did not get into its queue. code: what SQS called it, or the network error's class."""

    def __init__(self, queue: str, code: str) -> None:
        super().__init__(f"queue {queue}: message not taken ({code})")
        self.queue, self.code = queue, code


class NotInvoked(OutscalerError):
    """Another function was not invoked. code: what Lambda called it, or the network error's class."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"function {function}: not invoked ({code})")
        self.function, self.code = function, code
