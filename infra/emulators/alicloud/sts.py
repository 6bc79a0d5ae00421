"""The emulated Security Token Service: sessions for an access key or for an identity token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.iam import AlicloudKey, AlicloudKeyRing, Role
from infra.emulators.alicloud.serializers import stamp

Json = dict[str, Any]


class Sts:
    """Creates sessions for the roles of a key ring."""

    def __init__(self, ring: AlicloudKeyRing, clock: Callable[[], float]) -> None:
        self._ring, self._clock = ring, clock

    def assume_role(self, sent: Mapping[str, str], caller: AlicloudKey) -> Json:
        """AssumeRole: the role must trust the caller's key."""
        role = self._role(sent)
        if caller.id not in role.trusts:
            raise AlicloudRefusedError(
                "NoPermission",
                "You are not authorized to do this action. You should be authorized by RAM.",
            )
        return self._session(role, sent)

    def assume_role_with_oidc(self, sent: Mapping[str, str]) -> Json:
        """AssumeRoleWithOIDC: not signed; the identity token authenticates the caller."""
        role, provider, token = (
            self._role(sent),
            sent.get("OIDCProviderArn", ""),
            sent.get("OIDCToken", ""),
        )
        if not 4 <= len(token) <= 20000:
            raise AlicloudRefusedError(
                "InvalidParameter.OIDCToken",
                "The length of OIDCToken must be 4 to 20000 characters.",
            )
        if token not in self._ring.identities.get(provider, set()):
            raise AlicloudRefusedError(
                "AuthenticationFail.OIDCToken.Invalid", "The OIDC token is invalid."
            )
        if provider not in role.trusts:
            raise AlicloudRefusedError(
                "AuthenticationFail.NoPermission", "The role does not trust the OIDC provider."
            )
        return self._session(role, sent)

    def _role(self, sent: Mapping[str, str]) -> Role:
        if not sent.get("RoleSessionName"):
            raise AlicloudRefusedError(
                "MissingRoleSessionName", "RoleSessionName is mandatory for this action."
            )
        role = self._ring.roles.get(sent.get("RoleArn", ""))
        if role is None:
            raise AlicloudRefusedError("EntityNotExist.Role", "The role does not exist.")
        return role

    def _session(self, role: Role, sent: Mapping[str, str]) -> Json:
        text = sent.get("DurationSeconds", "3600")
        if not text.isdigit() or not 900 <= int(text) <= role.longest:
            raise AlicloudRefusedError(
                "InvalidParameter.DurationSeconds",
                f"DurationSeconds must be 900 to {role.longest:.0f}.",
            )
        made = self._ring.session(role.policy, self._clock() + int(text))
        user = {
            "Arn": f"{role.arn}/{sent['RoleSessionName']}",
            "AssumedRoleId": f"local:{sent['RoleSessionName']}",
        }
        return {"Credentials": credentials_json(made), "AssumedRoleUser": user}


def credentials_json(session: AlicloudKey) -> Json:
    """Return a session in the form of STS and of the metadata service."""
    return {
        "AccessKeyId": session.id,
        "AccessKeySecret": session.secret,
        "SecurityToken": session.token,
        "Expiration": stamp(session.expires),
    }
