"""The interface with which an emulated cloud account is attached to a simulated cluster, on virtual
time (local_world.py) or live (live/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from chalicelib.model.policy_permissions import Deployment
from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.store import ObjectStore


class CloudBeside(Protocol):
    """A vendor's emulated account attached to the cluster (e.g.
    infra/emulators/alicloud/attached_account.py)."""

    def secrets(self) -> Mapping[str, str]:
        """Return the secrets that the account's policy section refers to: name -> text. The account
        can be attached to any cluster, so the emulated deployment shares these secrets."""

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Use that clock. Returns the controller that makes the account's
        machines Nodes of the cluster."""

    def start(self) -> None:
        """Serve the account's API."""

    def stop(self) -> None:
        """Stop serving. Harmless if serving never started."""


LOOPBACK = Deployment(loopback=True)
"""The vendors' own hosts, and all servers on this machine."""
FILES = Deployment(loopback=True, files=True)
"""The same for a command, which may read files of its workstation."""


def permitted(clouds: Iterable[CloudBeside]) -> Deployment:
    """Return the limits with these accounts attached to the clusters, which
    share the accounts' secrets."""
    return Deployment(
        loopback=True,
        shared_secrets=frozenset(name for cloud in clouds for name in cloud.secrets()),
    )
