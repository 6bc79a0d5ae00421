"""What can go wrong on the way into a queue.

    OutscalerError
    └── NotSent      the queue did not take the message; nothing was changed, asking again later is safe
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class NotSent(OutscalerError):
    """A message did not get into its queue. code: what SQS called it, or the network error's class."""

    def __init__(self, queue: str, code: str) -> None:
        super().__init__(f"queue {queue}: message not taken ({code})")
        self.queue, self.code = queue, code
