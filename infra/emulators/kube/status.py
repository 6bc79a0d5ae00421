"""Error responses of the simulated API server: one exception that contains a metav1.Status, with
the texts of the real server.

Every text and every `details` was taken from recorded responses of kube-apiserver 1.36 or
follows from its published error helpers. Clients branch on `reason`, `code` and
`details`, so these must be exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.model.errors import OutscalerError

OPTIMISTIC_LOCK = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class ApiError(OutscalerError):
    """An error response of the API server.

    code:    HTTP status; reason: metav1.StatusReason ("" if the real server sends none)
    details: `{"name": …, "group": …, "kind": …, "causes": […]}`, None if the real response has
    no such field headers: additional response headers (Retry-After); meta: the Status' own
    metadata (a new continue token)
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = details, dict(headers or {})
        self.meta: dict[str, str] = {}
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """Return the metav1.Status object of the response."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(code: int | None = None, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a metav1.Status with status Success."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return status


def about(
    name: str, group: str, kind: str, causes: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return details


def qualified(plural: str, group: str) -> str:
    """Return `nodes` or `deployments.apps`, the name of a resource in messages."""
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Return 404 for a missing object."""
    return ApiError(
        404,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        about(name, group, plural),
    )


def no_such_path() -> ApiError:
    """Return 404 for a resource that the group does not serve."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """Return 409 for a create with an existing name."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, about(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str = OPTIMISTIC_LOCK) -> ApiError:
    """Return 409 for a write against a version or uid other than the stored one."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, about(name, group, plural))


def bad_request(message: str) -> ApiError:
    """Return 400 without details."""
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """Return 410: the requested version is no longer available, and the
    client has to list again."""
    return ApiError(410, "Expired", message)


def cause(reason: str, message: str, field: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "field": field}


def invalid(kind: str, group: str, name: str, causes: Sequence[Mapping[str, str]]) -> ApiError:
    """Return 422 with every cause. The message joins the distinct ones, in
    brackets if there are several."""
    lines = list(dict.fromkeys(f"{each['field']}: {each['message']}" for each in causes))
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, about(name, group, kind, causes))


def rejected() -> ApiError:
    """Return the error for a well-formed request that cannot be carried out (a JSON
    patch whose test fails)."""
    return ApiError(
        422, "Invalid", "the server rejected our request due to an error in our request", {}
    )
