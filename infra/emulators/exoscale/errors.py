"""Error responses of the emulated Exoscale: a status and a text, in one of the known forms of error bodies."""

from __future__ import annotations

import json


class ExoscaleRefusedError(Exception):
    """An error response. retry_after: seconds, None for no such header."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.retry_after = status, message, retry_after

    def body(self, form: str) -> bytes:
        """Return the body. form: `message`, `error`, `problem` (a problem document) or `text`."""
        if form == "text":
            return self.message.encode()
        bodies: dict[str, object] = {
            "message": {"message": self.message},
            "error": {"error": self.message},
            "problem": {
                "type": "about:blank",
                "title": "The request was refused",
                "detail": self.message,
                "errors": [self.message],
            },
        }
        return json.dumps(bodies[form]).encode()
