"""What happens to the marks of nodes that leave: webhooks refuse them, other programs strip them,
and passes die between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from chalicelib.model.node import LEAVING_MARKS
from infra.emulators.kube.objects import clone
from infra.emulators.kube.request import Response, answer
from tests.faults.fault_schedule import API, KILL, Strike
from tests.faults.run_state import FaultRun
from tests.faults.steering_audit import PASS, marks_on

_KEY = LEAVING_MARKS[0].encode()


def refuse(m: FaultRun, dice: Random) -> str:
    """Lets a webhook refuse the marks of a node, or of none any more."""
    nodes = m.world.nodes()
    refusing = set(dice.sample(nodes, 1)) if nodes and dice.random() < 0.7 else set()

    def admission(path: str, body: bytes) -> Response | None:
        name = path.partition("?")[0].rpartition("/")[2]
        node = m.world.kube.peek("nodes", name)
        if name not in refusing or node is None or body.count(_KEY) <= len(marks_on(node)):
            return None
        assert m.world.audit.steering is not None
        m.world.audit.steering.refused(name)
        told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden"}
        return answer(403, {**told, "code": 403, "message": "admission webhook denied it"})

    m.world.weather.admission = admission
    return f"a webhook refuses the marks of {', '.join(refusing) or 'no node'}"


def strip(m: FaultRun, dice: Random) -> str:
    """Takes the marks off one node, or off all."""
    marked = [node for node in m.world.kube.list("nodes") if marks_on(node)]
    if not marked:
        return ""
    nodes = marked if dice.random() < 0.3 else [dice.choice(marked)]
    assert m.world.audit.steering is not None
    for node in nodes:
        made = clone(node)
        taints = made["spec"]["taints"]
        made["spec"]["taints"] = [each for each in taints if each["key"] not in LEAVING_MARKS]
        m.world.kube.update("nodes", made)
        m.world.audit.steering.stripped(made["metadata"]["name"])
        m.world.audit.count("marks stripped")
    m.world.settle()
    return f"strip the marks of {len(nodes)} nodes"


def kill_between(m: FaultRun, dice: Random) -> str:
    """Kills a pass around one of its next writes to the cluster: marks are most of them."""
    strike = Strike(KILL, dice.randint(1, 6), API, PASS, writing=True, after=dice.random() < 0.5)
    m.world.weather.strikes.append(strike)
    return f"kill a pass at write {strike.countdown}"


def kill_after_marks(m: FaultRun, dice: Random) -> str:
    """Kills an executor at one of its next writes to the cluster: marks are there, and the drain is
    under way."""
    strike = Strike(KILL, dice.randint(1, 6), API, writing=True, after=dice.random() < 0.5)
    m.world.weather.strikes.append(strike)
    return f"kill anybody at write {strike.countdown} to the cluster"


RULES: tuple[tuple[int, Callable[[FaultRun, Random], str]], ...] = (
    (2, refuse),
    (4, strip),
    (2, kill_between),
    (1, kill_after_marks),
)
"""How often each of them comes."""
