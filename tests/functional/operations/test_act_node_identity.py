"""A node registered again while its removal is open is not the planned node."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import UID, OperationState
from tests.functional.operations.harness import OperationHarness


def _again(stage: OperationHarness, name: str) -> None:
    """The kubelet registers its node again: another uid, and no taint of ours on it."""
    found = stage.kube.peek("nodes", name)
    assert found is not None
    spec = {"providerID": found["spec"]["providerID"]}
    stage.kube.remove("nodes", name)
    stage.kube.create("nodes", {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("place", ["act:claimed", "taint:called"])
def test_node_registered_again_during_its_removal_stays(
    stage: OperationHarness, place: str
) -> None:
    stage.policy()
    stage.group(2)
    found = stage.kube.peek("nodes", "g-1")
    assert found is not None
    operation = stage.remove("g-1", from_size=2, to_size=1, data={UID: found["metadata"]["uid"]})

    def again() -> None:
        del stage.at_checkpoint[place]
        _again(stage, "g-1")

    stage.at_checkpoint[place] = again
    stage.play()
    after = stage.now(operation)
    assert (after.status.state, after.status.error_class) == (OperationState.FAILED, "Conflict")
    assert "it was registered anew since it was planned" in after.status.outcome
    assert stage.untouched("g-1")
    assert len(stage.provider.pools["g"].machines) == 2
