"""What every change works with, and the questions that all of them ask first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.models import ScalingGroup
from chalicelib.providers.alicloud.scaling_activities import running
from chalicelib.providers.alicloud.settings import AlicloudBounds, AlicloudSettings
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Unknown

_TOKEN = 48  # digits; ESS takes 64 characters


class AlicloudContext(msgspec.Struct, frozen=True):
    """joined: the cluster's nodes as of now; None where there is no way to the cluster."""

    api: AlicloudApi
    settings: AlicloudSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def bounds(self, group: str) -> AlicloudBounds:
        """The policy's bounds of a group; raises InvalidRequest for one that the policy does not name: whatever it is,
        it is not ours to touch."""
        for each in self.settings.groups:
            if each.id == group:
                return each
        raise InvalidRequest(f"the policy names no scaling group {group}")

    def group(self, group: str) -> ScalingGroup:
        """The scaling group as of now; raises NotFound, and Unknown for one that cannot be understood."""
        found = self.api.groups([group]).get(group)
        if found is None:
            raise NotFound(f"there is no scaling group {group} in {self.settings.region}")
        if found.problem:
            raise Unknown(f"scaling group {group} {found.problem}")
        return found

    def check_idle(self, group: str) -> None:
        """Raises Conflict while an activity of the group is running: what was just read does not hold then."""
        if running(self.api.activities(group)):
            raise Conflict(f"{group}: a scaling activity is under way", code="ScalingActivityInProgress")


def client_token(operation: Operation, *parts: str) -> str:
    """The same request of the same operation has the same token, so that ESS carries it out once (defect 6)."""
    text = msgspec.json.encode([operation.spec.id, *parts])
    return f"outscaler-{hashlib.sha256(text).hexdigest()[:_TOKEN]}"
