"""Temporary credentials from the Security Token Service: a role by an access key, or by an OIDC token (RRSA).

Every refusal by STS is Unauthorized: a role, a trust policy or a token is wrong, and the operator must act. A response
without credentials, on which upstream crashes, is handled the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.alicloud.credentials import (
    LIFETIME,
    AlicloudCredential,
    AlicloudCredentialSource,
    refused_for_good,
)
from chalicelib.providers.alicloud.decoding import decode
from chalicelib.providers.alicloud.endpoints import VERSIONS, Service
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.alicloud.rpc_client import LIMITS, VENDOR, Line, new_nonce
from chalicelib.providers.alicloud.signing import canonical_query, timestamp
from chalicelib.providers.errors import ProviderError, Unauthorized
from chalicelib.providers.http import Http, VendorRequest, VendorResponse
from chalicelib.providers.services import ProviderServices


class Granted(msgspec.Struct, frozen=True, rename="pascal"):
    """A temporary credential in the format of STS and the metadata service."""

    access_key_id: str = ""
    access_key_secret: str = ""
    security_token: str = ""
    expiration: str = ""

    def __repr__(self) -> str:
        return "Granted(***)"


class StsAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The response to AssumeRole and AssumeRoleWithOIDC."""

    credentials: Granted | None = None


class Sts(msgspec.Struct, frozen=True):
    """url: the service's root, with scheme."""

    url: str
    means: ProviderServices
    now: Callable[[], float]
    new_nonce: Callable[[], str] = new_nonce

    def by_key(self, source: AlicloudCredentialSource, role_arn: str, session_name: str) -> AlicloudCredential:
        """Call AssumeRole, signed with that key. Raises ProviderError."""
        line = Line(Service.STS, self.url, source, self.means, self.now, new_nonce=self.new_nonce)
        params = {"RoleArn": role_arn, "RoleSessionName": session_name, "DurationSeconds": f"{LIFETIME:.0f}"}
        try:
            return credential_of(line.call("AssumeRole", params, StsAnswer).credentials, self.now(), "AssumeRole")
        except ProviderError as error:
            raise _for_a_person(error) from None

    def by_oidc(self, secret: Secret, provider_arn: str, role_arn: str, session_name: str) -> AlicloudCredential:
        """Call AssumeRoleWithOIDC, which needs no signature: the token is in the body. Raises ProviderError."""
        action = "AssumeRoleWithOIDC"
        form = {
            "RoleArn": role_arn,
            "OIDCProviderArn": provider_arn,
            "OIDCToken": secret.reveal(),
            "DurationSeconds": f"{LIFETIME:.0f}",
        }
        call = VendorRequest(
            "POST",
            f"{self.url}/",
            {"content-type": "application/x-www-form-urlencoded"},
            {"Action": action, "RoleSessionName": session_name},
            urlencode(form).encode(),
            safe=True,
        )
        http = Http(
            vendor=VENDOR,
            deployment=self.means.deployment,
            sleep=self.means.sleep,
            chance=self.means.chance,
            clock=self.now,
            secrets=lambda: (secret,),
            explain=error_for,
            sign=self._dated,
            limits=LIMITS,
        )
        try:
            return credential_of(_read(http.send(call)), self.now(), action)
        except ProviderError as error:
            message = secret.hidden_in(f"{action}: {error.message}")
            raise _for_a_person(
                type(error)(message, code=error.code, request_id=error.request_id, retry_after=error.retry_after)
            ) from None
        finally:
            http.close()

    def _dated(self, request: VendorRequest) -> VendorRequest:
        params = request.params | {
            "Version": VERSIONS[Service.STS],
            "Format": "JSON",
            "Timestamp": timestamp(self.now()),
            "SignatureNonce": self.new_nonce(),
        }
        return VendorRequest(
            request.method, f"{request.url}?{canonical_query(params)}", request.headers, {}, request.body, request.safe
        )


def credential_of(granted: Granted | None, now: float, asked: str) -> AlicloudCredential:
    """Return the granted credential; raises Unauthorized if something is missing.

    An unreadable expiry is taken as one hour from now. A session that ends sooner is renewed when the vendor refuses
    it."""
    if granted is None or not (granted.access_key_id and granted.access_key_secret and granted.security_token):
        raise Unauthorized(f"{asked}: the answer holds no credentials", code="NoCredentials")
    try:
        expires = parse_time(granted.expiration)
    except BadInput:
        expires = now + LIFETIME
    return AlicloudCredential(
        Secret(granted.access_key_id),
        Secret(granted.access_key_secret),
        Secret(granted.security_token),
        obtained=now,
        expires=expires,
    )


def _read(response: VendorResponse) -> Granted | None:
    return decode(response, StsAnswer).credentials


def _for_a_person(error: ProviderError) -> ProviderError:
    if isinstance(error, Unauthorized) or not refused_for_good(error):
        return error
    return Unauthorized(error.message, code=error.code, request_id=error.request_id)
