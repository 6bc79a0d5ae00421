"""What happens to nodes by itself: notices of their vendor, sickness, and other
templates of their groups.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import with_conditions
from infra.emulators.kube.objects import clone
from tests.faults.cluster import GROUPS
from tests.faults.objects import NOTICE, taint_of
from tests.faults.run_state import FaultRun

Rule = Callable[[FaultRun, Random], str]
DEADLOCK = "KernelDeadlock"
VERSIONS = ("v1.36.3", "v1.36.4", "v1.37.0")


def notice(m: FaultRun, dice: Random) -> str:
    """Announces that a machine is taken back in two minutes, or takes one such notice back."""
    if m.notices and dice.random() < 0.4:
        name = dice.choice(sorted(m.notices))
        keep(m, name)
        return f"the vendor keeps {name} after all"
    free = [name for name in m.world.nodes() if name not in m.notices and m.machine_stays(name)]
    if not free:
        return ""
    name = dice.choice(free)
    announce(m, name)
    return f"the vendor announces to take {name} back"


def announce(m: FaultRun, name: str) -> None:
    """Announces that a node's machine is taken back in two minutes."""
    m.notices[name] = m.world.clock() + 120.0
    m.world.audit.count("notices")
    _set_taint(m, name, present=True)


def keep(m: FaultRun, name: str) -> None:
    """Takes the notice of a node's machine back."""
    del m.notices[name]
    _set_taint(m, name, present=False)


def _set_taint(m: FaultRun, name: str, *, present: bool) -> None:
    node = m.world.kube.get("nodes", name)
    if node is None or (taint_of(node, NOTICE) is not None) == present:
        return
    others = [each for each in node["spec"].get("taints") or () if each["key"] != NOTICE]
    node["spec"]["taints"] = (
        [*others, {"key": NOTICE, "effect": "NoSchedule"}] if present else others
    )
    m.world.kube.update("nodes", node)
    m.world.settle()


def sicken(m: FaultRun, dice: Random) -> str:
    """Makes a node sick, or a sick one well again."""
    nodes = m.world.kube.list("nodes")
    sick = [node for node in nodes if _has_deadlock(m, node["metadata"]["name"])]
    well = [node for node in nodes if not _has_deadlock(m, node["metadata"]["name"])]
    heals = bool(sick) and (len(sick) > 1 or dice.random() < 0.3)
    if not (sick if heals else well):
        return ""
    node = clone(dice.choice(sick if heals else well))
    told = {
        "type": DEADLOCK,
        "status": str(not heals),
        "reason": "DockerHung" if not heals else "KernelHasNoDeadlock",
    }
    node.setdefault("status", {})["conditions"] = with_conditions(node, m.world.clock(), told)
    m.world.kube.update("nodes", node)
    m.world.settle()
    return f"{node['metadata']['name']} is {'well again' if heals else 'sick'}"


def _has_deadlock(m: FaultRun, name: str) -> bool:
    node = m.world.audited_nodes().get(name)
    return node is not None and node.conditions.get(DEADLOCK, ("", 0.0))[0] == "True"


def template(m: FaultRun, dice: Random) -> str:
    """Gives a group another template, maybe an earlier one; its machines stay. While they are of
    two earlier ones, Outscaler removes none of them, so that this comes seldom."""
    name = dice.choice(sorted(GROUPS))
    if dice.random() < 0.75 and any(
        each.outdated for each in m.world.audited_nodes().values() if each.group == name
    ):
        return ""
    held = m.world.kube.peek("machinedeployments", name, "default", fields.GROUP)
    assert held is not None
    version = dice.choice(
        [each for each in VERSIONS if each != held["spec"]["template"]["spec"]["version"]]
    )
    m.world.cluster.capi.change_template(f"default/{name}", version)
    m.world.settle()
    return f"new machines of {name} get {version}"


RULES: tuple[tuple[int, Rule], ...] = ((3, notice), (3, sicken), (2, template))
"""How often each of them comes, in runs that replace nodes."""
