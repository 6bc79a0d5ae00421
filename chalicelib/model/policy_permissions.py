"""Limits what the policies of a deployment may refer to: secrets by name, hosts besides the
vendors' own, and files.

The author of a policy may have no other rights in the AWS account, but the functions act on the
policy with their own rights. The limits therefore come from the deployment (environment variables
that the template sets), never from a policy. The defaults are strict: a missing value permits
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import prefix_of, secret_prefix

SECRET_PREFIX = "OUTSCALER_SECRET_PREFIX"  # noqa: S105 - the name of a variable
SHARED_SECRETS = "OUTSCALER_SHARED_SECRETS"
ALLOWED_ENDPOINTS = "OUTSCALER_ALLOWED_ENDPOINTS"
DEFAULT_PREFIX = "outscaler/"

IN_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
"""Lambda sets this variable for every function."""

_PREFIX = re.compile(r"([A-Za-z0-9/_+=.@-]{0,200}[A-Za-z0-9/])?\Z")
_NAME = re.compile(r"(ssm:/)?[A-Za-z0-9/_+=.@-]{1,512}\Z")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"({_LABEL}(\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])(:[1-9][0-9]{{0,4}})?\Z")
_MOST = 200  # entries per list
_PUBLISHED = "the settings that the deployment has published"


class Deployment(msgspec.Struct, frozen=True):
    """secret_prefix: common prefix of the names of all secrets. shared_secrets: full names
    that every cluster may use.

    endpoints: `host` or `host:port` of addresses that vendors' settings may name besides the
    vendors' own. loopback: whether this machine's own addresses may be called. files: whether
    settings may name local files. prefix_known: whether secret_prefix was set explicitly rather
    than by default.
    """

    secret_prefix: str = DEFAULT_PREFIX
    shared_secrets: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    loopback: bool = False
    files: bool = False
    prefix_known: bool = True


STRICT = Deployment()
"""The strict default: only the vendors' own hosts, no shared secrets, no
files, and the usual prefix."""


def deployment_of(environment: Mapping[str, str], *, files: bool = False) -> Deployment:
    """Return the deployment that the environment variables describe. Raises BadInput
    naming the invalid variable.

    files: whether settings may name local files, which only a command may permit.
    """
    named = prefix_of(environment)
    configured_prefix = environment.get(SECRET_PREFIX, secret_prefix(named) if named else None)
    prefix = DEFAULT_PREFIX if configured_prefix is None else configured_prefix
    if not _PREFIX.match(prefix) or ".." in prefix:
        raise BadInput(
            f"environment: {SECRET_PREFIX}",
            "cannot begin the name of a secret",
            f"write it like {DEFAULT_PREFIX}",
        )
    return Deployment(
        secret_prefix=prefix,
        shared_secrets=_listed(environment, SHARED_SECRETS, _NAME, "outscaler/shared/exoscale"),
        endpoints=_listed(
            environment, ALLOWED_ENDPOINTS, _HOST, "api.example.com,proxy.example.com:8443"
        ),
        loopback=not environment.get(IN_LAMBDA),
        files=files,
        prefix_known=configured_prefix is not None,
    )


class PublishedSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A deployment's settings for those who judge a policy elsewhere: in a row of the policy table,
    in an output of the CloudFormation stack, and in the file of `outscaler login`. Lists are as in
    the environment variables. loopback: of an emulation only."""

    secret_prefix: str
    shared_secrets: str = ""
    allowed_endpoints: str = ""
    loopback: bool = False


def published(deployment: Deployment) -> PublishedSettings:
    """Return the settings that a deployment publishes."""
    return PublishedSettings(
        deployment.secret_prefix,
        ",".join(sorted(deployment.shared_secrets)),
        ",".join(sorted(deployment.endpoints)),
        deployment.loopback,
    )


def published_in(text: str | bytes) -> PublishedSettings:
    """Return the settings in a JSON text. Keys of a later release are ignored. Raises
    BadInput for another text."""
    try:
        return msgspec.json.decode(text, type=PublishedSettings)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(
            _PUBLISHED, f"cannot be read ({error})", "run make deploy, or deploy the stack again"
        ) from None


def deployment_published(settings: PublishedSettings) -> Deployment:
    """Return the deployment of published settings, by the rules by which the functions read their
    variables. Raises BadInput for settings with which no function would start."""
    deployment = deployment_of(
        {
            SECRET_PREFIX: settings.secret_prefix,
            SHARED_SECRETS: settings.shared_secrets,
            ALLOWED_ENDPOINTS: settings.allowed_endpoints,
        }
    )
    return msgspec.structs.replace(deployment, loopback=settings.loopback)


def _listed(
    environment: Mapping[str, str], variable: str, form: re.Pattern[str], example: str
) -> frozenset[str]:
    """Return the entries of a comma-separated list; surrounding blanks are ignored."""
    entries = [
        entry for part in environment.get(variable, "").split(",") if (entry := part.strip())
    ]
    if len(entries) > _MOST or not all(form.match(entry) for entry in entries):
        raise BadInput(
            f"environment: {variable}",
            f"is not a list of at most {_MOST} names, separated by commas",
            f"write it like {example}",
        )
    return frozenset(entries)
