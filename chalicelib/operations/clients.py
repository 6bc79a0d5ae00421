"""Lazily opened clients of an operation's step: the cluster's API and one provider.

A removal that must be rolled back must not fail because the provider's secret is missing, nor a
scale-up because the cluster does not respond. Each client is therefore opened at its first use, and
a failure to open it is raised as an error of that client, which the steps can handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster import errors as kube
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.operation import Operation
from chalicelib.operations.kube_node_api import KubeNodes
from chalicelib.operations.step_context import Recheck, StepContext
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit import errors as vendor
from chalicelib.providers.kit.base import Provider
from chalicelib.runtime.runtime import Runtime

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient


class OperationClients:
    """Both clients for one operation and one policy, kept for one invocation."""

    def __init__(self, operation: Operation, policy: Policy, runtime: Runtime) -> None:
        self._policy, self._rt, self._provider = policy, runtime, operation.spec.provider
        self._group = operation.spec.group
        self._is_repair = operation.spec.reason == DisruptionReason.REPAIR.value
        self._cluster: KubeClient | None = None

    def cluster(self) -> KubeClient:
        """Return the cluster's API; raises ClusterError for any failure to open it."""
        if self._cluster is None:
            try:
                self._cluster = self._rt.kube_client(self._policy)
            except kube.ClusterError:
                raise
            except BadInput as error:
                raise kube.Invalid(str(error)) from error
            except OutscalerError as error:
                raise kube.Unavailable(f"no connection: {error}") from error
        return self._cluster

    def provider(self) -> Provider:
        """Return the operation's provider; raises ProviderError, or ClusterError for one
        that uses the cluster's API."""
        mine = {
            name: settings
            for name, settings in self._policy.providers.items()
            if name == self._provider
        }
        # settings of other providers may be invalid
        policy = msgspec.structs.replace(self._policy, providers=mine)
        try:
            providers = self._rt.providers(policy, self.cluster(), self._rt.read_secret)
        except (vendor.ProviderError, kube.ClusterError):
            raise
        except BadInput as error:
            raise vendor.InvalidRequest(str(error)) from error
        except OutscalerError as error:
            raise vendor.Transient(f"no way to provider {self._provider}: {error}") from error
        for provider in providers:
            if provider.name == self._provider:
                return provider
        raise vendor.InvalidRequest(f"provider {self._provider} is not in the policy any more")

    def context(self) -> StepContext:
        """Return the dependencies of a step."""
        return StepContext(
            provider=self.provider,
            cluster=KubeNodes(self.cluster),
            options=self._policy.options,
            recheck=self._recheck,
            checkpoint=self._rt.checkpoint,
            announced_by_vendor=self._announced_by_vendor,
        )

    def _announced_by_vendor(self, node: str) -> bool:
        """Return what the last pass has remembered; without spec.spot nothing is
        remembered, and nothing is certain."""
        if self._policy.spot is None:
            return True
        group = self._rt.store.memory.look(self._policy.name).groups.get(self._group)
        notice = (
            group.risk.notices.get(node) if group is not None and group.risk is not None else None
        )
        return notice is not None and notice.by_vendor

    def _recheck(self, node: str) -> Recheck:
        # Imported here because it loads the planner's rules and numpy, which only
        # the steps of a drain need.
        from chalicelib.operations.drain_recheck import DrainRecheck

        present = KubeNodes(self.cluster).node(node) if self._is_repair else None
        is_dead = present is not None and not present.ready
        return DrainRecheck(
            self.cluster(), self._policy.options, self._rt.clock(), is_dead=is_dead
        )(node)
