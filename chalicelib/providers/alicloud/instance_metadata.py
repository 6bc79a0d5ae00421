"""Reads the role of an ECS instance from its metadata service, only if the settings request it.

Lambda has no such service. This exists for parity and for a pass that runs on an ECS instance. The protected mode
(IMDSv2), which upstream does not support, is tried first. There is one attempt with a timeout of one second for each
wait, so a missing service is detected in less than three seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.vendor_hosts import METADATA, METADATA_SERVICE
from chalicelib.providers.alicloud.credentials import AlicloudCredential
from chalicelib.providers.alicloud.sts import Granted, credential_of
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.http import Http, Limits, VendorRequest
from chalicelib.providers.services import ProviderServices

ENDPOINT = METADATA
_LIMITS = Limits(connect=1.0, read=1.0, total=2.0, attempts=1)
_TOKEN_SECONDS = "300"  # noqa: S105 - how long the token lives
_ROLES = "/latest/meta-data/ram/security-credentials/"


class InstanceRole(msgspec.Struct, frozen=True):
    """url: the service's root. role: empty for the instance's own role."""

    url: str
    role: str
    means: ProviderServices
    now: Callable[[], float]

    def credential(self) -> AlicloudCredential:
        """Return a session of the role. Raises Unauthorized if there is no role, Transient if there is no response."""
        http = Http(
            vendor=METADATA_SERVICE,
            deployment=self.means.deployment,
            sleep=self.means.sleep,
            chance=self.means.chance,
            clock=self.now,
            limits=_LIMITS,
        )
        try:
            return self._ask(http)
        except BadInput as error:
            raise Unauthorized(f"instance metadata: {error}", code="MetadataAddress") from None
        except ProviderError as error:
            kept = type(error) if isinstance(error, Unauthorized | Transient | Throttled) else Unauthorized
            raise kept(f"instance metadata: {error.message}", code=error.code) from None
        finally:
            http.close()

    def _ask(self, http: Http) -> AlicloudCredential:
        headers = self._token(http)
        role = self.role or self._text(http, _ROLES, headers).splitlines()[0].strip()
        if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", role):
            raise Unauthorized("the instance has no role", code="NoRole")
        answer = http.send(VendorRequest("GET", f"{self.url}{_ROLES}{role}", dict(headers), safe=True))
        try:
            granted = msgspec.json.decode(answer.body, type=Granted)
        except msgspec.MsgspecError:
            raise Transient("the answer is not a credential") from None
        return credential_of(granted, self.now(), f"role {role}")

    def _token(self, http: Http) -> dict[str, str]:
        """Return the header of the protected mode; none if the service reports that it does not support that mode."""
        headers = {"X-aliyun-ecs-metadata-token-ttl-seconds": _TOKEN_SECONDS}
        try:
            answer = http.send(VendorRequest("PUT", f"{self.url}/latest/api/token", headers, body=b""))
        except Transient as error:
            if not error.code:
                raise  # no service responds: another attempt would only take longer
            return {}
        except ProviderError:
            return {}
        text = answer.body.decode("ascii", "replace").strip()
        return {"X-aliyun-ecs-metadata-token": text} if re.fullmatch(r"[!-~]{1,4096}", text) else {}

    def _text(self, http: Http, path: str, headers: dict[str, str]) -> str:
        answer = http.send(VendorRequest("GET", f"{self.url}{path}", dict(headers), safe=True))
        return answer.body.decode("utf-8", "replace").strip() or "\n"
