"""The last decision of a cluster from the deployed table, for commands that have no access to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.model.errors import BadInput
from chalicelib.record.last_decision import DecisionUnreadable, LastDecision, last_decision

if TYPE_CHECKING:
    from chalicelib.store import Store


def load_decision(store: Store, cluster: str) -> tuple[LastDecision | None, str]:
    """Return the last decision and "", or None and why there is none that can be shown. Raises StoreError."""
    passed = store.scan_states.last(cluster)
    if passed is None:
        return None, f"{cluster}: no pass has been made yet"
    try:
        found = last_decision(cluster, passed, store.journal)
    except DecisionUnreadable as error:
        return None, str(error)
    return found, "" if found else f"{cluster}: the journal has no decision"


def required_decision(store: Store, cluster: str) -> LastDecision:
    """Return the last decision. Raises BadInput where there is none."""
    found, problem = load_decision(store, cluster)
    if found is None:
        raise BadInput(cluster, problem.removeprefix(f"{cluster}: "), "outscaler plan --kubeconfig FILE plans now")
    return found
