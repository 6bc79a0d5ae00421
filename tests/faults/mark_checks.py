"""The end of marks: after a run of a cluster whose scheduler is steered, the switch to a mode that
does not act, or of steering to false, takes all marks back.
"""

from __future__ import annotations

from random import Random

from chalicelib.runtime.messages import RECONCILE, Cause, ReconcileMessage, encode
from infra.emulators.controllers import objects
from infra.emulators.kube.objects import clone
from tests.faults import cluster
from tests.faults.final_checks import STRIDE
from tests.faults.run_state import Broken, FaultRun
from tests.faults.steering_audit import marks_on

HIGH, LOW, FLOOD = 20, 10, 240.0
"""Replicas that need many nodes, those that leave them half empty, and seconds between both."""
TRIES = 15
"""Looks, one a minute, until marks are there before the switch."""
TAKEN_BACK = 300.0
"""Seconds after the switch until no mark is there."""
SWITCHES = ("shadow", "off", "steering false")


def finish_marks(m: FaultRun, dice: Random) -> None:
    """Lets a horizon begin, unless one stands, switches, and waits until no mark is left.
    Raises Broken."""
    audit = m.world.audit
    assert audit.steering is not None
    _wait_for_marks(m)
    marked = marked_nodes(m)
    switch = dice.choice(SWITCHES)
    m.world.tell(f"at the end: {switch}, with marks on {len(marked)} nodes")
    m.steering = switch != "steering false"
    m.mode = switch if m.steering else m.mode
    m.apply_policy()
    _request_pass(m)
    audit.steering.switches += 1
    audit.steering.ended = m.steering
    until = m.world.clock() + TAKEN_BACK
    while m.world.clock() < until:
        m.world.step(STRIDE)
        m.check()
    left = marked_nodes(m)
    if left:
        raise Broken(m.report([f"after the switch to {switch} nodes keep their marks: {left}"]))
    if marked:
        audit.count(f"marks taken back by {switch}")


def marked_nodes(m: FaultRun) -> list[str]:
    """The nodes with marks."""
    return [node["metadata"]["name"] for node in m.world.kube.list("nodes") if marks_on(node)]


def _request_pass(m: FaultRun) -> None:
    """Asks for a pass, as `outscaler apply` does: without it none is made in mode off."""
    message = ReconcileMessage(m.world.name, Cause.PERSON.value, m.world.clock())
    m.world.queues.send(RECONCILE, encode(message), 0)


def _wait_for_marks(m: FaultRun) -> None:
    """Lets a Deployment fill nodes and shrink again, which leaves them half empty."""
    if not marked_nodes(m):
        m.bounds = dict(cluster.STEERED_BOUNDS)
        for name, (least, most) in m.bounds.items():
            m.world.audit.note_bounds(name, least, most)
        m.apply_policy()
        m.world.seed(objects.deployment("tide", replicas=HIGH, cpu="800m", memory="128Mi"))
        m.world.step(FLOOD)
        found = m.world.kube.peek("deployments", "tide", "default", "apps")
        assert found is not None
        tide = clone(found)
        tide["spec"]["replicas"] = LOW
        m.world.kube.update("deployments", tide, "apps")
        m.world.settle()
    for _ in range(TRIES):
        if marked_nodes(m):
            return
        m.world.step(STRIDE)
        m.check()
