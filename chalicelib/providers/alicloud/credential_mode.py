"""Selects how credentials are obtained: exactly one method must be configured completely.

Upstream takes the first complete set of settings. An incomplete set falls through to the instance metadata service,
whose address does not respond outside ECS. Here an incomplete set is an error that names what is missing, and the
metadata service is used only if the settings request it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import place_of

PLACE = "providers.alicloud"


class Way(StrEnum):
    """How credentials are obtained."""

    KEY = "access key"
    ROLE = "role, by access key"
    OIDC = "role, by OIDC token"
    METADATA = "role of an ECS instance"


class Access(msgspec.Struct, frozen=True):
    """The credential settings. They hold names of secrets, never secrets. An empty text means "not given"."""

    credentials_secret: str = ""
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_secret: str = ""
    oidc_token_file: str = ""
    metadata_endpoint: str = ""
    ram_role: str = ""

    @property
    def by_oidc(self) -> bool:
        """Whether any OIDC setting is given."""
        return bool(self.oidc_provider_arn or self.oidc_token_secret or self.oidc_token_file)

    @property
    def by_metadata(self) -> bool:
        """Whether the settings request the metadata service."""
        return bool(self.metadata_endpoint or self.ram_role)


def way_of(access: Access, *, key_id: bool, key_secret: bool, token: bool) -> Way:
    """Return the one method that is configured. key_id, key_secret, token: contents of the secret.

    Raises BadInput naming what is missing, or if two methods are configured.
    """
    by_key = key_id or key_secret or token
    given = [
        name
        for name, there in (
            ("an access key", by_key),
            ("OIDC", access.by_oidc),
            ("instance metadata", access.by_metadata),
        )
        if there
    ]
    if len(given) > 1:
        raise BadInput(f"{PLACE}", f"names two ways to credentials: {' and '.join(given)}", "keep one of them")
    if access.by_oidc:
        return _oidc(access)
    if access.by_metadata:
        return Way.METADATA
    secret = place_of(access.credentials_secret) if access.credentials_secret else f"{PLACE}.credentialsSecret"
    if not by_key:
        what = "holds no access key" if access.credentials_secret else "is missing, and no other credentials are named"
        raise BadInput(
            secret,
            what,
            "name a secret with accessKeyId and accessKeySecret, or give oidcProviderArn, roleArn and oidcTokenSecret",
        )
    for there, field in ((key_id, "accessKeyId"), (key_secret, "accessKeySecret")):
        if not there:
            raise BadInput(secret, f"{field} is missing", f"add {field} to it")
    return Way.ROLE if access.role_arn else Way.KEY


def check_access(access: Access) -> None:
    """Run the checks that are possible before the secret is read. Raises BadInput."""
    if access.oidc_token_secret and access.oidc_token_file:
        raise BadInput(f"{PLACE}.oidcTokenFile", "conflicts with oidcTokenSecret", "keep one of the two")
    if not access.credentials_secret:
        way_of(access, key_id=False, key_secret=False, token=False)


def _oidc(access: Access) -> Way:
    for field, value in (("oidcProviderArn", access.oidc_provider_arn), ("roleArn", access.role_arn)):
        if not value:
            raise BadInput(f"{PLACE}.{field}", "is missing, and credentials by OIDC need it", f"add {field}")
    if not (access.oidc_token_secret or access.oidc_token_file):
        raise BadInput(
            f"{PLACE}.oidcTokenSecret",
            "is missing, and credentials by OIDC need it",
            "name the secret that holds the token (or oidcTokenFile, a file of this machine)",
        )
    return Way.OIDC
