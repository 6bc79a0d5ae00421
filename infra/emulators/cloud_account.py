"""What an emulated cloud must offer to stand beside a simulated cluster, on virtual time (world.py) or live (live/)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.store import ObjectStore


class CloudBeside(Protocol):
    """A vendor's emulated account beside the cluster (infra/emulators/alicloud/attached_account.py)."""

    def secrets(self) -> Mapping[str, str]:
        """What the account's policy section refers to: name -> text. The account stands beside any cluster, so these
        are secrets that the emulated deployment shares."""

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Live on that clock; what makes the account's machines Nodes of the cluster."""

    def start(self) -> None:
        """Serve the account's API."""

    def stop(self) -> None:
        """Stop serving; harmless if it never began."""
