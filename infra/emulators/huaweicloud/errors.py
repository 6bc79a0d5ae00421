"""Error responses of the emulated Huawei Cloud: a status, a code and a text, in one of several forms of bodies."""

from __future__ import annotations

import json


class CceRefusedError(Exception):
    """An error response. retry_after: seconds, None for no such header."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after

    def body(self, form: str, request: str) -> bytes:
        """Return the body. form: `cce`, `gateway`, `plain`, `page` (HTML of a proxy in front of the API), or "" for the
        form of the component that refuses. request: the call's id."""
        if form == "page":
            return f"<html><body><h1>{self.status} Bad Gateway</h1></body></html>".encode()
        own = "gateway" if self.code.startswith("APIGW.") else "cce"
        bodies: dict[str, dict[str, str]] = {
            "cce": {"errorCode": self.code, "errorMessage": self.message},
            "gateway": {"error_code": self.code, "error_msg": self.message, "request_id": request},
            "plain": {"code": self.code, "message": self.message},
        }
        return json.dumps(bodies[form or own]).encode()


def bad(message: str) -> CceRefusedError:
    """Return the error for a request that is invalid or currently impossible."""
    return CceRefusedError(400, "CCE.01400001", message)


def missing(what: str) -> CceRefusedError:
    """Return the error for a missing object."""
    return CceRefusedError(404, "CCE.01404001", f"Resource not found: {what}")
