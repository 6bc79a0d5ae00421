"""What policies may name in the emulation. This includes addresses of this machine, where the emulated vendors are
served; the vendors of a deployed function never are."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.policy_permissions import Deployment
from infra.emulators.cloud_account import CloudBeside

LOOPBACK = Deployment(loopback=True)
"""The vendors' own hosts, and all servers on this machine."""
FILES = Deployment(loopback=True, files=True)
"""The same for a command, which may read files of its workstation."""


def permitted(clouds: Iterable[CloudBeside]) -> Deployment:
    """Return the limits with these accounts attached to the clusters, which share the accounts' secrets."""
    return Deployment(loopback=True, shared_secrets=frozenset(name for cloud in clouds for name in cloud.secrets()))
