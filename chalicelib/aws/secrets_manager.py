"""AWS calls for connecting to a cluster: secrets, an EKS cluster's address, and a token for it.

botocore is loaded by the first call, not by the import: its import takes as long as
all other imports together.
"""

from __future__ import annotations

import base64
import binascii
import threading
from typing import Any

from chalicelib.aws import session
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import PARAMETER, Secret, SecretUnavailable, parameter_name, place_of

_TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 - a scheme's name
_CLUSTER_HEADER = "x-k8s-aws-id"
# Lifetime of the signed URL itself; EKS accepts the token for 15 minutes regardless of this value.
_SIGNED_FOR = 60
_RETRIES = {"total_max_attempts": 3, "mode": "standard"}
_CALLS: dict[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": _RETRIES}

# AWS error code -> problem, remedy.
_CORRECTABLE = {
    "ResourceNotFoundException": ("does not exist", "create it, or correct its name in the policy"),
    "InvalidRequestException": (
        "is marked for deletion",
        "restore it, or name another in the policy",
    ),
    "AccessDeniedException": (
        "may not be read by this function",
        "allow it in the function's IAM policy",
    ),
    "DecryptionFailure": ("cannot be decrypted", "allow the function's role to use the KMS key"),
    "ValidationException": ("is not a valid name", "correct it in the policy"),
    "InvalidParameterException": ("is not a valid name", "correct it in the policy"),
    "ParameterNotFound": ("does not exist", "create it, or correct its name in the policy"),
    "InvalidKeyId": ("cannot be decrypted", "allow the function's role to use the KMS key"),
}
_ENCRYPTED = "SecureString"


class SecretsManagerReader:
    """Reads secrets from Secrets Manager by name, and from SSM parameters by names that begin with
    `ssm:/`. Each is fetched once for the life of the object; fresh() fetches it again.

    client, parameters: botocore clients for the two services, created at their first use where they
    are not given. Calls raise BadInput for a mistake that an operator must correct,
    SecretUnavailable where AWS does not respond. Thread-safe.
    """

    def __init__(self, client: Any = None, parameters: Any = None) -> None:
        self._client, self._parameters = client, parameters
        self._secrets: dict[str, Secret] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str) -> str:
        """Return the secret's text, from memory if it was read before."""
        secret = self._secrets.get(name)
        return secret.reveal() if secret is not None else self.fresh(name)

    def fresh(self, name: str) -> str:
        """Return the secret's current text."""
        text = self._read_parameter(name) if name.startswith(PARAMETER) else self._read_secret(name)
        self._secrets[name] = Secret(text)
        return text

    def _read_secret(self, name: str) -> str:
        with self._lock:
            self._client = self._client or _client("secretsmanager", "")
        text = _ask(place_of(name), self._client.get_secret_value, SecretId=name).get(
            "SecretString"
        )
        if not isinstance(text, str):
            raise BadInput(place_of(name), "is binary", "store it as text (SecretString)")
        return text

    def _read_parameter(self, name: str) -> str:
        with self._lock:
            self._parameters = self._parameters or _client("ssm", "")
        answer = _ask(
            place_of(name),
            self._parameters.get_parameter,
            Name=parameter_name(name),
            WithDecryption=True,
        )
        parameter = answer.get("Parameter", {})
        text = parameter.get("Value")
        if parameter.get("Type") != _ENCRYPTED or not isinstance(text, str):
            raise BadInput(
                place_of(name), "is not encrypted", f"store it again with the type {_ENCRYPTED}"
            )
        return text


def eks_endpoint(name: str, region: str) -> tuple[str, bytes]:
    """Return address and CA (PEM) of an EKS cluster. region "": the function's own."""
    place = f"EKS cluster {name}"
    cluster = _ask(place, _client("eks", region).describe_cluster, name=name)["cluster"]
    endpoint = str(cluster.get("endpoint") or "")
    encoded = str((cluster.get("certificateAuthority") or {}).get("data") or "")
    if not endpoint.startswith("https://") or not encoded:
        problem = f"has no endpoint yet (status {cluster.get('status', 'unknown')})"
        raise BadInput(place, problem, "wait until it is ACTIVE")
    try:
        return endpoint.rstrip("/"), base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise SecretUnavailable(f"{place}: AWS gave a CA that is not base64") from None


def eks_token(name: str, region: str) -> Secret:
    """Return a bearer token for an EKS cluster: a signed GetCallerIdentity URL that names the
    cluster in a signed header.

    Nothing is sent. EKS calls the URL itself and learns from STS who signed it;
    it does so for 15 minutes.
    """
    # A custom endpoint from the environment would work for own calls, but EKS only
    # accepts STS's real host names.
    client = _client("sts", region, ignore_configured_endpoint_urls=True)

    def name_the_cluster(request: Any, **_: object) -> None:
        request.headers[_CLUSTER_HEADER] = name

    client.meta.events.register("before-sign.sts.GetCallerIdentity", name_the_cluster)
    url = _ask(
        f"EKS cluster {name}",
        client.generate_presigned_url,
        ClientMethod="get_caller_identity",
        ExpiresIn=_SIGNED_FOR,
        HttpMethod="GET",
    )
    return Secret(_TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("="))


def _client(service: str, region: str, **settings: Any) -> Any:
    from botocore.exceptions import BotoCoreError

    try:
        return session.client(service, region=region, **_CALLS, **settings)
    except BotoCoreError as error:
        raise BadInput("AWS region", str(error), "set kubernetes.region in the policy") from None


def _ask(place: str, call: Any, **arguments: Any) -> Any:
    """Make one call to AWS and convert its errors."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        return call(**arguments)
    except NoCredentialsError:
        problem = "cannot be read without AWS credentials"
        raise BadInput(place, problem, "give the environment a role or a profile") from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in _CORRECTABLE:
            raise BadInput(place, *_CORRECTABLE[code]) from None
        raise SecretUnavailable(f"{place}: AWS answered {code or 'an error'}") from None
    except BotoCoreError as error:
        raise SecretUnavailable(f"{place}: no answer from AWS ({type(error).__name__})") from None
