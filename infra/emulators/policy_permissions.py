"""What the emulation lets policies name: its vendors are served on this machine, and a Lambda function's are not."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.policy_permissions import Deployment
from infra.emulators.cloud_account import CloudBeside

LOOPBACK = Deployment(loopback=True)
"""The vendors' own hosts, and whatever is served on this machine."""
FILES = Deployment(loopback=True, files=True)
"""The same for a command, which may read files of its workstation."""


def permitted(clouds: Iterable[CloudBeside]) -> Deployment:
    """Where these accounts stand beside the clusters: their secrets are shared by all of them."""
    return Deployment(loopback=True, shared_secrets=frozenset(name for cloud in clouds for name in cloud.secrets()))
