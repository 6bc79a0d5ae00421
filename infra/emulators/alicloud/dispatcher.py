"""Processes every call of the emulated API: authentication, throttling, permission, action, log.

One host serves all products. The version in a call identifies the product; paths
identify the metadata service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.authentication import AlicloudAuthenticator
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.fault_injection import (
    OVER_LIMIT,
    REFUSALS,
    RETRY_MILLISECONDS,
    WRITES,
    milliseconds,
)
from infra.emulators.alicloud.handlers import OLD, STS, AlicloudHandlers, Sent
from infra.emulators.alicloud.iam import AlicloudKey, AlicloudKeyRing
from infra.emulators.alicloud.metadata import Metadata
from infra.emulators.alicloud.serializers import as_text, older
from infra.emulators.alicloud.signing import claim
from infra.emulators.alicloud.sts import Sts
from infra.emulators.vendor_common.dispatcher import VendorDispatcher
from infra.emulators.vendor_common.fault_injection import (
    NEVER_RECEIVED,
    VendorFaults,
    VendorRefusedError,
    VendorThrottle,
)
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt

Json = dict[str, Any]
_PRODUCTS = {
    "2014-08-28": "ess",
    "2022-02-22": "ess",
    "2014-05-26": "ecs",
    "2016-04-28": "vpc",
    STS: "sts",
}


class AlicloudLoggedRequest(msgspec.Struct, frozen=True):
    """One call. code: of the error, "" if the call succeeded."""

    method: str
    action: str
    version: str
    parameters: Mapping[str, str]
    key: str
    host: str
    at: float
    code: str = ""

    @property
    def permission(self) -> str:
        """Return the name of its RAM permission: `ess:RemoveInstances`."""
        return f"{_PRODUCTS.get(self.version, '')}:{self.action}"

    @property
    def writes(self) -> bool:
        """Return whether it requests a change."""
        return self.action in WRITES

    @property
    def line(self) -> str:
        """Return it as a line without signature or token."""
        parts = [
            f"{name}={value}"
            for name, value in sorted(self.parameters.items())
            if name not in _SIGNING
        ]
        return " ".join((self.method, self.permission, *parts))


_SIGNING = frozenset(
    {
        "Signature",
        "SecurityToken",
        "SignatureNonce",
        "AccessKeyId",
        "OIDCToken",
        "Timestamp",
        "SignatureMethod",
        "SignatureVersion",
        "SignatureType",
    }
)


class AlicloudDispatcher(VendorDispatcher[AlicloudLoggedRequest]):
    """The API of an account. seen: confidential texts that were transmitted (signatures, tokens)
    and must not appear in any output. text_values: numbers and booleans in responses are sent as
    text. unseen: how often DescribeInstances was answered with an empty list because the key lacks
    the permission, as the vendor documents."""

    def __init__(self, cloud: AlicloudCloud) -> None:
        super().__init__(
            cloud,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_MILLISECONDS),
            VendorThrottle(cloud.clock, OVER_LIMIT, wait=milliseconds),
            AlicloudRefusedError("InternalError", "the emulation has crashed"),
        )
        self.cloud, self.ring = cloud, AlicloudKeyRing()
        self.metadata = Metadata(self.ring, cloud.clock, cloud.region)
        self.seen: set[str] = set()
        self.text_values = False
        self.unseen = 0
        self._gate, self._sts = (
            AlicloudAuthenticator(self.ring, cloud.clock),
            Sts(self.ring, cloud.clock),
        )
        self._actions = AlicloudHandlers(cloud)
        self._served = 0

    def handle(self, incoming: Incoming) -> Answer:
        """Handle one parsed request."""
        return (
            self._metadata(incoming) if self.metadata.knows(incoming.path) else self._call(incoming)
        )

    def _metadata(self, incoming: Incoming) -> Answer:
        status, text = self.metadata.answer(incoming)
        self._note(
            incoming, f"metadata {incoming.path}", "", {}, "" if status == 200 else str(status)
        )
        return Answer(status, text.encode(), {"Content-Type": "text/plain"})

    def _call(self, incoming: Incoming) -> Answer:
        sent = incoming.parameters()
        action = incoming.headers.get("x-acs-action") or sent.get("Action", "")
        version = incoming.headers.get("x-acs-version") or sent.get("Version", "")
        self._served += 1
        request_id = f"LOCAL{self._served:03d}-0000-4000-8000-{self._served:012d}"
        fault, code = self.faults.take(action), ""
        try:
            self.faults.refuse(fault)
            made = {} if fault in NEVER_RECEIVED else self._do(incoming, action, version, sent)
            answer = Answer(200, _bytes({"RequestId": request_id, **self._shaped(made, version)}))
        except VendorRefusedError as problem:
            code, answer = (
                problem.code,
                self.refusal(problem, request_id, incoming.headers.get("host", "")),
            )
        self._note(incoming, action, version, sent, code)
        return spoilt(answer, fault)

    def _do(self, incoming: Incoming, action: str, version: str, sent: Mapping[str, str]) -> Json:
        if version == STS and action == "AssumeRoleWithOIDC":
            return self._sts.assume_role_with_oidc(sent)
        key = self._gate.admit(incoming)
        self.throttle.count(action)
        try:
            self._allow(key, action, version, sent)
        except AlicloudRefusedError:
            if action != "DescribeInstances" or sent.get("DryRun", "").lower() == "true":
                raise
            self.unseen += 1
            return {"Instances": {"Instance": []}, "NextToken": "", "TotalCount": 0}
        if version == STS and action == "AssumeRole":
            return self._sts.assume_role(sent, key)
        made = self._actions.find(version, action)(Sent(version, sent))
        return older(made) if version == OLD else made

    def _allow(self, key: AlicloudKey, action: str, version: str, sent: Mapping[str, str]) -> None:
        name, resource = f"{_PRODUCTS.get(version, '')}:{action}", "*"
        if action == "RebootInstance":
            resource = (
                f"acs:ecs:{self.cloud.region}:{self.cloud.account}:instance/"
                f"{sent.get('InstanceId', '')}"
            )
        elif action in WRITES:
            group = sent.get("ScalingGroupId", "")
            resource = f"acs:ess:{self.cloud.region}:{self.cloud.account}:scalinggroup/{group}"
        elif version == STS:
            resource = sent.get("RoleArn", "")
        if key.permissions is not None and not key.permissions.allows(name, resource):
            raise AlicloudRefusedError(
                "Forbidden.RAM", f"User not authorized to operate on the specified resource: {name}"
            )

    def _shaped(self, made: Json, version: str) -> Json:
        return as_text(made) if self.text_values and version != STS else made

    def refusal(
        self, problem: VendorRefusedError, request_id: str = "LOCAL", host: str = ""
    ) -> Answer:
        """Return the response of an error."""
        body: Json = {
            "RequestId": request_id,
            "HostId": host,
            "Code": problem.code,
            "Message": problem.message,
            "Recommend": f"https://api.example.invalid/troubleshoot?q={problem.code}",
        }
        if problem.status == 403:
            body["AccessDeniedDetail"] = {"NoPermissionType": "ImplicitDeny"}
        after = (
            {} if problem.retry_after is None else {"x-acs-retry-after": str(problem.retry_after)}
        )
        return Answer(problem.status, _bytes(body), after)

    def _note(
        self, incoming: Incoming, action: str, version: str, sent: Mapping[str, str], code: str
    ) -> None:
        claimed = claim(incoming)
        if claimed is not None:
            self.seen |= {text for text in (claimed.signature, claimed.token) if text}
        self.log.append(
            AlicloudLoggedRequest(
                incoming.method,
                action,
                version,
                dict(sent),
                claimed.key if claimed else "",
                incoming.headers.get("host", ""),
                self.cloud.clock(),
                code,
            )
        )


def _bytes(body: Json) -> bytes:
    return json.dumps(body).encode()
