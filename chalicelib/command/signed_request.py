"""A request to the deployment's own API, signed with the caller's AWS credentials."""

from __future__ import annotations

from urllib.parse import urlsplit

from chalicelib.aws import session
from chalicelib.model.errors import BadInput, OutscalerError

_LARGEST = 100_000  # bytes of an answer
_SECONDS = 15


class ApiFailure(OutscalerError):
    """The API did not answer, or refused the request."""


def post(url: str) -> bytes:
    """Return the body of the answer to an empty POST. url: HTTPS. A host of API Gateway names its region; a custom
    domain needs a configured one. Raises ApiFailure, BadInput."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.httpsession import URLLib3Session

    host = urlsplit(url).hostname or ""
    labels = host.split(".")
    named = labels[2] if len(labels) > 3 and labels[1] == "execute-api" else ""
    where = named or session.configured_region()
    credentials = session.credentials()
    if credentials is None:
        raise BadInput("AWS credentials", "are missing", "set AWS_PROFILE or the variables of a role")
    if not where:
        raise BadInput(url, "does not name its region", "set AWS_REGION")
    request = AWSRequest("POST", url, {"Content-Type": "application/json"}, b"{}")
    try:
        SigV4Auth(credentials.get_frozen_credentials(), "execute-api", where).add_auth(request)
        answer = URLLib3Session(timeout=_SECONDS).send(request.prepare())
    except BotoCoreError as error:
        raise ApiFailure(f"{host}: no answer ({type(error).__name__})") from None
    if answer.status_code != 200:
        raise ApiFailure(f"{host} answers {answer.status_code}: {answer.content[:200].decode('utf-8', 'replace')}")
    return bytes(answer.content[:_LARGEST])
