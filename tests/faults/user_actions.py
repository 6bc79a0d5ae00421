"""Actions of users and their programs on a cluster during scaling, each as one
write to the simulated API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.kube.status import ApiError
from tests.faults.cluster import GROUPS, MAINTENANCE, SHAPES, Shape
from tests.faults.objects import SAFE_TO_EVICT, SCALE_DOWN_DISABLED, marks_of, must_move
from tests.faults.run_state import FaultRun

Change = Callable[[KubeObject], None]


def _edit(m: FaultRun, plural: str, obj: KubeObject, group: str, change: Change) -> None:
    made = clone(obj)
    change(made)
    m.world.kube.update(plural, made, group)
    m.world.settle()


def _annotate(key: str, value: str | None) -> Change:
    def change(obj: KubeObject) -> None:
        marks = obj["metadata"].setdefault("annotations", {})
        if value is None:
            marks.pop(key, None)
        else:
            marks[key] = value

    return change


def _one(
    m: FaultRun, dice: Random, plural: str, group: str = "", namespace: str | None = None
) -> KubeObject | None:
    found = m.world.kube.list(plural, namespace, group)
    return dice.choice(found) if found else None


# -- workloads


def create(m: FaultRun, dice: Random, shapes: Sequence[Shape] = SHAPES) -> str:
    """Creates a Deployment of one of the shapes."""
    if len(m.world.kube.list("deployments", group="apps")) >= 6:
        return ""
    m.made += 1
    shape, replicas = dice.choice(shapes), dice.randint(1, 4)
    name = f"{shape.name}-{m.made}"
    m.world.seed(
        objects.deployment(
            name, replicas=replicas, cpu=shape.cpu, memory=shape.memory, **shape.spec
        )
    )
    return f"create deployment {name} x{replicas}"


def scale(m: FaultRun, dice: Random) -> str:
    """Changes the number of replicas."""
    found = _one(m, dice, "deployments", "apps", "default")
    if found is None:
        return ""
    count = dice.choice((0, 0, 1, 2, 3, 4, 6))
    _edit(m, "deployments", found, "apps", lambda obj: obj["spec"].update(replicas=count))
    return f"scale {found['metadata']['name']} to {count}"


def delete(m: FaultRun, dice: Random) -> str:
    """Deletes a Deployment."""
    found = _one(m, dice, "deployments", "apps", "default")
    if found is None:
        return ""
    m.world.kube.delete("deployments", found["metadata"]["name"], "default", "apps")
    m.world.settle()
    return f"delete deployment {found['metadata']['name']}"


def budget(m: FaultRun, dice: Random) -> str:
    """Creates, changes or deletes a PodDisruptionBudget over a Deployment."""
    found = _one(m, dice, "deployments", "apps", "default")
    if found is None:
        return ""
    name, kube = found["metadata"]["name"], m.world.kube
    there = kube.peek("poddisruptionbudgets", name, "default", "policy")
    allowed = dice.choice((0, 0, 1, 1, 2))
    if there is None:
        m.world.seed(objects.pdb(name, max_unavailable=allowed))
        return f"budget {name}: maxUnavailable {allowed}"
    if dice.random() < 0.4:
        kube.delete("poddisruptionbudgets", name, "default", "policy")
        m.world.settle()
        return f"delete budget {name}"
    _edit(
        m,
        "poddisruptionbudgets",
        there,
        "policy",
        lambda obj: obj["spec"].update(maxUnavailable=allowed),
    )
    return f"budget {name}: now maxUnavailable {allowed}"


def delete_pod(m: FaultRun, dice: Random) -> str:
    """Deletes a pod directly."""
    found = _one(m, dice, "pods", namespace="default")
    if found is None:
        return ""
    m.world.kube.delete("pods", found["metadata"]["name"], "default")
    m.world.settle()
    return f"delete pod {found['metadata']['name']}"


def bind_pod(m: FaultRun, dice: Random) -> str:
    """Binds one more pod of a Deployment, as a scheduler that has not seen a taint yet; to a
    tainted node if there is one."""
    models = [
        pod
        for pod in m.world.kube.list("pods", "default")
        if pod["metadata"].get("ownerReferences")
    ]
    nodes = [node["metadata"]["name"] for node in m.world.kube.list("nodes")]
    marked = [name for name in nodes if m.is_marked(name)]
    if not models or not nodes:
        return ""
    model, node = dice.choice(models), dice.choice(marked or nodes)
    app = model["metadata"]["labels"]["app"]
    deployment = m.world.kube.peek("deployments", app, "default", "apps")
    if deployment is None:
        return ""
    m.made += 1
    meta = {
        key: clone(model["metadata"][key]) for key in ("namespace", "labels", "ownerReferences")
    }
    m.world.kube.create(
        "pods",
        {
            "metadata": {"name": f"bound-{m.made}", **meta},
            "spec": {"nodeName": node, "containers": clone(model["spec"]["containers"])},
        },
    )
    _edit(
        m,
        "deployments",
        deployment,
        "apps",
        lambda obj: obj["spec"].update(replicas=obj["spec"]["replicas"] + 1),
    )
    return f"bind pod bound-{m.made} of {app} to {node}"


def protect(m: FaultRun, dice: Random) -> str:
    """Sets safe-to-evict on a pod to false or true, or removes it."""
    found = [pod for pod in m.world.kube.list("pods", "default") if must_move(pod)]
    if not found:
        return ""
    pod, value = dice.choice(found), dice.choice(("false", "false", "true", None))
    _edit(m, "pods", pod, "", _annotate(SAFE_TO_EVICT, value))
    return f"pod {pod['metadata']['name']}: safe-to-evict {value}"


# -- nodes


def cordon(m: FaultRun, dice: Random) -> str:
    """Cordons a schedulable node or uncordons a cordoned one, whoever cordoned it."""
    node = _one(m, dice, "nodes")
    if node is None:
        return ""
    name, owned = node["metadata"]["name"], m.world.audit.cordoned_by_users
    if node["spec"].get("unschedulable"):
        owned.discard(name)
        _edit(m, "nodes", node, "", lambda obj: obj["spec"].pop("unschedulable"))
        return f"uncordon {name}"
    if m.is_marked(name) or "outscaler.dev/operation" in marks_of(node):
        m.world.audit.taken_over.add(name)  # this cordon could not be distinguished from ours
    else:
        owned.add(name)
    _edit(m, "nodes", node, "", lambda obj: obj["spec"].update(unschedulable=True))
    return f"cordon {name}"


def taint(m: FaultRun, dice: Random) -> str:
    """Adds or removes a user's own taint on a node."""
    node = _one(m, dice, "nodes")
    if node is None:
        return ""
    kept = [each for each in node["spec"].get("taints") or () if each["key"] != MAINTENANCE]
    mine = len(kept) == len(node["spec"].get("taints") or ())
    taints = [*kept, {"key": MAINTENANCE, "effect": "NoSchedule"}] if mine else kept
    _edit(m, "nodes", node, "", lambda obj: obj["spec"].update(taints=taints))
    return f"{'taint' if mine else 'untaint'} {node['metadata']['name']}"


def steal_taint(m: FaultRun, dice: Random) -> str:
    """Removes our taint from a node."""
    marked = [node for node in m.world.kube.list("nodes") if m.is_marked(node["metadata"]["name"])]
    if not marked:
        return ""
    node = dice.choice(marked)
    kept = [
        each
        for each in node["spec"].get("taints") or ()
        if each["key"] != "ToBeDeletedByClusterAutoscaler"
    ]
    m.world.audit.taken_over.add(node["metadata"]["name"])
    _edit(m, "nodes", node, "", lambda obj: obj["spec"].update(taints=kept))
    return f"take our taint off {node['metadata']['name']}"


def disable(m: FaultRun, dice: Random) -> str:
    """Adds or removes scale-down-disabled on a node."""
    node = _one(m, dice, "nodes")
    if node is None:
        return ""
    there = SCALE_DOWN_DISABLED in marks_of(node)
    _edit(m, "nodes", node, "", _annotate(SCALE_DOWN_DISABLED, None if there else "true"))
    return f"scale-down-disabled {'off' if there else 'on'} {node['metadata']['name']}"


# -- groups and policy


def replicas(m: FaultRun, dice: Random) -> str:
    """Scales a node group manually within its bounds."""
    name = dice.choice(sorted(GROUPS))
    found = m.world.kube.peek("machinedeployments", name, "default", fields.GROUP)
    assert found is not None
    least, most = m.bounds[name]
    count = min(most, max(least, found["spec"]["replicas"] + dice.choice((-1, 1, 2))))
    m.world.audit.forgive(name, count)
    _edit(
        m, "machinedeployments", found, fields.GROUP, lambda obj: obj["spec"].update(replicas=count)
    )
    return f"scale group {name} to {count} by hand"


def delete_machine(m: FaultRun, dice: Random) -> str:
    """Deletes a Machine."""
    found = _one(m, dice, "machines", fields.GROUP)
    if found is None:
        return ""
    m.world.audit.note_machine_deleted(found["metadata"]["labels"][fields.DEPLOYMENT_NAME])
    m.world.kube.delete("machines", found["metadata"]["name"], "default", fields.GROUP)
    m.world.settle()
    return f"delete machine {found['metadata']['name']}"


def bounds(m: FaultRun, dice: Random) -> str:
    """Changes the bounds of a group in the policy."""
    name = dice.choice(sorted(GROUPS))
    least = dice.choice((0, 0, 1, 2))
    most = max(least, dice.choice((1, 2, 3, 4, 5)))
    m.bounds[name] = (least, most)
    m.world.audit.note_bounds(name, least, most)
    m.apply_policy()
    return f"policy: {name} {least}..{most}"


def mode(m: FaultRun, dice: Random) -> str:
    """Changes the mode of the cluster to off, shadow or active."""
    if m.world.audit.steering is not None:
        m.world.audit.steering.switches += 1
    m.mode = "active" if m.mode != "active" else dice.choice(("shadow", "off"))
    m.apply_policy()
    return f"policy: mode {m.mode}"


def reprice(m: FaultRun, dice: Random) -> str:
    """Changes the prices of nodes in the policy."""
    for name in sorted(m.prices):
        m.prices[name] = dice.choice((5, 8, 12, 20, 35))
    m.apply_policy()
    return "policy: " + ", ".join(
        f"{name} costs {price}" for name, price in sorted(m.prices.items())
    )


Rule = Callable[[FaultRun, Random], str]

RULES: tuple[tuple[int, Rule], ...] = (
    (4, create),
    (10, scale),
    (2, delete),
    (3, budget),
    (2, delete_pod),
    (2, bind_pod),
    (2, protect),
    (2, cordon),
    (1, taint),
    (1, steal_taint),
    (1, disable),
    (2, replicas),
    (1, delete_machine),
    (2, bounds),
    (1, mode),
)
"""How often each of them comes, among the users' rules."""


def any_rule(m: FaultRun, dice: Random) -> str:
    """Runs any user rule."""
    (rule,) = dice.choices([rule for _, rule in RULES], [weight for weight, _ in RULES])
    return refusable(rule, m, dice)


def refusable(rule: Rule, m: FaultRun, dice: Random) -> str:
    """Runs a rule; returns the rejection as text if the API rejects it."""
    try:
        return rule(m, dice)
    except ApiError as error:
        return f"{rule.__name__} was refused: {error}"
