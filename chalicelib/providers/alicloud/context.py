"""The shared context of all changes, and the checks that all of them make first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.models import ScalingGroup
from chalicelib.providers.alicloud.scaling_activities import running
from chalicelib.providers.alicloud.settings import AlicloudSettings
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Unknown

_TOKEN = 48  # digits; ESS accepts 64 characters


class AlicloudContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: AlicloudApi
    settings: AlicloudSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def bounds(self, group: str) -> AlicloudBounds:
        """Return the policy's bounds of a group.

        Raises InvalidRequest for a group that the policy does not name, which must not be changed."""
        for each in self.settings.groups:
            if each.id == group:
                return each
        raise InvalidRequest(f"the policy names no scaling group {group}")

    def group(self, group: str) -> ScalingGroup:
        """Return the current scaling group; raises NotFound, and Unknown for a group that cannot be decoded."""
        found = self.api.groups([group]).get(group)
        if found is None:
            raise NotFound(f"there is no scaling group {group} in {self.settings.region}")
        if found.problem:
            raise Unknown(f"scaling group {group} {found.problem}")
        return found

    def check_idle(self, group: str) -> None:
        """Raise Conflict while an activity of the group is running, because the data just read may already be
        outdated."""
        if running(self.api.activities(group)):
            raise Conflict(f"{group}: a scaling activity is under way", code="ScalingActivityInProgress")


def client_token(operation: Operation, *parts: str) -> str:
    """Return the ClientToken of a request. It is stable per operation and request, so ESS executes the request once."""
    text = msgspec.json.encode([operation.spec.id, *parts])
    return f"outscaler-{hashlib.sha256(text).hexdigest()[:_TOKEN]}"
