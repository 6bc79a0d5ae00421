"""The Provider protocol over ESS scaling groups: wires the parts. A scaling activity under way is no failed scale-up
(defect 8; settled.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.alicloud import groups
from chalicelib.providers.alicloud.account import open_api
from chalicelib.providers.alicloud.api import Api
from chalicelib.providers.alicloud.context import Context
from chalicelib.providers.alicloud.discard import Joined
from chalicelib.providers.alicloud.remove import release, remove
from chalicelib.providers.alicloud.resize import grow, poll_growth, shrink
from chalicelib.providers.alicloud.settings import PROVIDER, Settings, read_settings
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.kube_api import KubeLists
from chalicelib.providers.settled import settled
from chalicelib.providers.workload import provider_ids

Step = Callable[[Context, Operation], Outcome]


class AliCloud:
    """The scaling groups of one region that a policy names, for one pass."""

    def __init__(self, api: Api, settings: Settings, kube: KubeLists | None = None) -> None:
        self._settings = settings
        joined = None if kube is None else lambda: provider_ids(kube)
        self._context = Context(api, settings, joined)

    @property
    def name(self) -> str:
        """`alicloud`."""
        return PROVIDER

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """All groups: one call per twenty of them, and one per fifty instances of each."""
        return groups.observe(self._context.api, self._settings, nodes)

    def grow(self, operation: Operation) -> Outcome:
        """from_size -> to_size by one idempotent request."""
        return self._outcome(grow, operation)

    def remove(self, operation: Operation) -> Outcome:
        """Remove by instance id; the size goes down with them."""
        return self._outcome(remove, operation)

    def release(self, operation: Operation) -> bool:
        """False where every target is gone or going."""
        return release(self._context, operation)

    def shrink_target(self, operation: Operation) -> Outcome:
        """Lower the desired capacity as long as every instance stays."""
        return self._outcome(shrink, operation)

    def poll(self, operation: Operation) -> Outcome:
        """Follow the scaling activity, or take the next step of a removal."""
        return self._outcome(_STEPS[operation.kind], operation)

    def _outcome(self, step: Step, operation: Operation) -> Outcome:
        return settled(step, self._context, operation, final=Joined)


_STEPS: dict[Kind, Step] = {
    Kind.GROW: poll_growth,
    Kind.REMOVE: remove,
    Kind.DISCARD: remove,
    Kind.SHRINK: shrink,
}


def build(connection: Connection) -> AliCloud:
    """A provider for one pass; raises BadInput for settings that cannot be. Nothing is asked of the vendor yet."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    return AliCloud(open_api(connection, settings), settings, kube)
