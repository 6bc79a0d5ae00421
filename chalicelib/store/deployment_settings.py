"""The settings of a deployment that decide which policies its functions permit, one row in the policy table.

The functions have these settings in their environment, which commands do not see. A command that judged by its own
environment would accept what every function refuses. The deployment therefore writes them (`make deploy`, `make
finish`, the emulation), commands read them, and functions use neither: a function that was taken over cannot change
what an operator is told. Releases before this row ignore it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment, deployment_published, published, published_in
from chalicelib.store.errors import StoreError
from chalicelib.store.table_client import Table
from chalicelib.store.tables import DEPLOYMENT_PARTITION, SETTINGS_ITEM, SettingsRow


class DeploymentSettings:
    """Reads and writes the row. table: of the policies. release: of this code, for people who look at the row."""

    def __init__(self, table: Table, clock: Callable[[], float], release: str) -> None:
        self._table, self._clock, self._release = table, clock, release

    def read(self) -> Deployment | None:
        """Return what the deployment has published; None where it has published nothing (an older release, or a
        CloudFormation stack, whose outputs say it). Raises StoreError, also for a row that cannot be read."""
        row = self._table.get(SettingsRow, DEPLOYMENT_PARTITION, SETTINGS_ITEM)
        if row is None:
            return None
        try:
            return deployment_published(published_in(row.text or ""))
        except BadInput as error:
            raise StoreError(str(error)) from None

    def publish(self, deployment: Deployment) -> None:
        """Write the settings that the functions of this deployment have. Raises StoreError."""
        row = SettingsRow(
            DEPLOYMENT_PARTITION,
            SETTINGS_ITEM,
            text=msgspec.json.encode(published(deployment)).decode(),
            release=self._release,
            since=self._clock(),
        )
        self._table.write(self._table.put(row))
