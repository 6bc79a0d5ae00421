"""The interface with which an emulated cloud account is attached to a simulated cluster, on virtual time
(local_world.py) or live (live/)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.store import ObjectStore


class CloudBeside(Protocol):
    """A vendor's emulated account attached to the cluster (e.g. infra/emulators/alicloud/attached_account.py)."""

    def secrets(self) -> Mapping[str, str]:
        """Return the secrets that the account's policy section refers to: name -> text. The account can be attached to
        any cluster, so the emulated deployment shares these secrets."""

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Use that clock. Returns the controller that makes the account's machines Nodes of the cluster."""

    def start(self) -> None:
        """Serve the account's API."""

    def stop(self) -> None:
        """Stop serving. Harmless if serving never started."""
