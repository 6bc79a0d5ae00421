"""Turns exceptions of AWS and network libraries into one line with a location and a remedy.

The command line may not import those libraries, and most commands must start without them. Their exceptions are
therefore recognised by class name anywhere in the chain of causes, because the store wraps them in errors of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_OF_AWS = frozenset({"botocore", "boto3", "pynamodb"})
_LIBRARIES = _OF_AWS | {"requests", "urllib3"}


class _Trouble(msgspec.Struct, frozen=True):
    """One known failure. names: class names, or error codes of AWS responses."""

    place: str
    remedy: str
    names: frozenset[str]


_TROUBLES = (
    _Trouble(
        "AWS region",
        "set AWS_DEFAULT_REGION, or a region in the profile that AWS_PROFILE names",
        frozenset({"NoRegionError"}),
    ),
    _Trouble("AWS_PROFILE", "name a profile that is in ~/.aws/config, or unset it", frozenset({"ProfileNotFound"})),
    _Trouble(
        "AWS credentials",
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, to ones that are "
        "valid and may read and write the table",
        frozenset(
            {
                "NoCredentialsError",
                "PartialCredentialsError",
                "CredentialRetrievalError",
                "SSOError",
                "LoginError",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "ExpiredTokenException",
                "IncompleteSignatureException",
                "MissingAuthenticationTokenException",
                "AccessDeniedException",
            }
        ),
    ),
    _Trouble(
        "DynamoDB table",
        "name the deployment's table with --table or OUTSCALER_TABLE, and its region with AWS_DEFAULT_REGION",
        frozenset({"ResourceNotFoundException"}),
    ),
    _Trouble(
        "AWS endpoint",
        "check AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and the network",
        frozenset({"ConnectionError", "HTTPClientError", "EndpointProviderError", "InvalidRegionError"}),
    ),
)


def words(error: BaseException) -> str:
    """Return one line for what the AWS libraries raised; empty if none of them is in the chain, or the error is not
    known."""
    for cause in _causes(error):
        if not _is_of(cause, _OF_AWS):
            continue
        code, message = _answer(cause)
        known = {kind.__name__ for kind in type(cause).__mro__} | {code}
        for trouble in _TROUBLES:
            if trouble.names & known:
                return f"{trouble.place}: {(message or str(cause)).rstrip('.')}; {trouble.remedy}"
    return ""


def is_foreign(error: BaseException) -> bool:
    """Return whether the exception's class belongs to one of these libraries."""
    return _is_of(error, _LIBRARIES)


def _is_of(error: BaseException, libraries: frozenset[str]) -> bool:
    return any(kind.__module__.partition(".")[0] in libraries for kind in type(error).__mro__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _answer(error: BaseException) -> tuple[str, str]:
    """Return (code, `code: message`) of an AWS error response (botocore's ClientError); empty for other errors."""
    response = getattr(error, "response", None)
    found = response.get("Error") if isinstance(response, dict) else None
    if not isinstance(found, dict) or not found.get("Code"):
        return "", ""
    return str(found["Code"]), f"{found['Code']}: {found.get('Message', '')}"
