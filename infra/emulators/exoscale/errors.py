"""Error responses of the emulated Exoscale: a status and a text, in one of the known forms of error bodies."""

from __future__ import annotations

import json


def error_body(message: str, form: str) -> bytes:
    """Return the body with this text. form: `message`, `error`, `problem` (a problem document) or `text`."""
    if form == "text":
        return message.encode()
    bodies: dict[str, object] = {
        "message": {"message": message},
        "error": {"error": message},
        "problem": {
            "type": "about:blank",
            "title": "The request was refused",
            "detail": message,
            "errors": [message],
        },
    }
    return json.dumps(bodies[form]).encode()
