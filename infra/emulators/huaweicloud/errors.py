"""Error responses of the emulated Huawei Cloud: a status, a code and a text, in one of
several forms of bodies.
"""

from __future__ import annotations

import json

from infra.emulators.vendor_common.fault_injection import VendorRefusedError


class CceRefusedError(VendorRefusedError):
    """An error response with a code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, message, code=code)


def error_body(problem: VendorRefusedError, form: str, request: str) -> bytes:
    """Return the body of an error. form: `cce`, `gateway`, `plain`, `page` (HTML of a proxy in
    front of the API), or "" for the form of the component that refuses. request: the call's id."""
    if form == "page":
        return f"<html><body><h1>{problem.status} Bad Gateway</h1></body></html>".encode()
    own = "gateway" if problem.code.startswith(("APIGW.", "CBC.")) else "cce"
    bodies: dict[str, dict[str, str]] = {
        "cce": {"errorCode": problem.code, "errorMessage": problem.message},
        "gateway": {
            "error_code": problem.code,
            "error_msg": problem.message,
            "request_id": request,
        },
        "plain": {"code": problem.code, "message": problem.message},
    }
    return json.dumps(bodies[form or own]).encode()


def bad(message: str) -> CceRefusedError:
    """Return the error for a request that is invalid or currently impossible."""
    return CceRefusedError(400, "CCE.01400001", message)


def missing(what: str) -> CceRefusedError:
    """Return the error for a missing object."""
    return CceRefusedError(404, "CCE.01404001", f"Resource not found: {what}")
