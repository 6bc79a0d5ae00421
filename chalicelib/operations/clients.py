"""The ways out of an operation's step, opened when they are used: the cluster's API and one provider.

A removal that must be rolled back shall not fail because the provider's secret is missing, nor a purchase because the
cluster does not answer. So each way is opened at its first use, and what goes wrong in opening it is an error of that
way, which the steps know how to take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chalicelib.kube import errors as kube
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.operation import Operation
from chalicelib.model.policy import Policy
from chalicelib.operations.kube_node_api import KubeNodes
from chalicelib.operations.step_context import Recheck, StepContext
from chalicelib.providers import errors as vendor
from chalicelib.providers.base import Provider
from chalicelib.runtime.runtime import Runtime

if TYPE_CHECKING:
    from chalicelib.kube.client import KubeClient


class OperationClients:
    """Both ways for one operation and one policy, kept for the length of one invocation."""

    def __init__(self, operation: Operation, policy: Policy, rt: Runtime) -> None:
        self._policy, self._rt, self._provider = policy, rt, operation.spec.provider
        self._cluster: KubeClient | None = None

    def cluster(self) -> KubeClient:
        """The cluster's API; raises ClusterError, whatever it was that stood in the way."""
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
        """The operation's provider; raises ProviderError, or ClusterError for one that lives in the cluster."""
        mine = {name: settings for name, settings in self._policy.providers.items() if name == self._provider}
        policy = msgspec.structs.replace(self._policy, providers=mine)  # the others' mistakes are not ours
        try:
            found = self._rt.providers(policy, self.cluster(), self._rt.read_secret)
        except (vendor.ProviderError, kube.ClusterError):
            raise
        except BadInput as error:
            raise vendor.InvalidRequest(str(error)) from error
        except OutscalerError as error:
            raise vendor.Transient(f"no way to provider {self._provider}: {error}") from error
        for provider in found:
            if provider.name == self._provider:
                return provider
        raise vendor.InvalidRequest(f"provider {self._provider} is not in the policy any more")

    def world(self) -> StepContext:
        """What a step gets."""
        return StepContext(
            provider=self.provider,
            cluster=KubeNodes(self.cluster),
            options=self._policy.options,
            recheck=self._recheck,
            checkpoint=self._rt.checkpoint,
        )

    def _recheck(self, node: str) -> Recheck:
        # Here and not at the start: it loads the planner's rules and numpy, which only the steps of a drain need.
        from chalicelib.operations.drain_recheck import DrainRecheck

        return DrainRecheck(self.cluster(), self._policy.options, self._rt.clock())(node)
