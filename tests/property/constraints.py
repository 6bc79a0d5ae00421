"""Constraints of random pods on nodes and on each other; every scheduler predicate occurs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from tests.property.objects import HOST, ZONE, Json, chance, container

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST_OR_ZONE = (HOST, HOST, ZONE)


class ConstraintsFixture(msgspec.Struct):
    """What a workload may refer to. own: its value of the label app; rev: of the label used by
    matchLabelKeys, or empty for a workload without it."""

    random: random.Random
    own: str
    rev: str
    apps: Sequence[str]
    zones: Sequence[str]
    nodes: Sequence[str]
    port: int

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return chance(self.random, share)


Wish = Callable[[ConstraintsFixture, Json], None]


def resources(scene: ConstraintsFixture, spec: Json) -> None:
    """Containers, side-cars and init containers; extended resources;
    overhead; pod-level resources."""
    draw = scene.random
    more = {"example.com/gpu": str(draw.choice((1, 1, 2)))} if scene.chance(0.1) else {}
    spec["containers"] = [
        container(
            draw.choice((0, 100, 250, 500, 900, 1500, 1900, 3000)),
            draw.choice((0, 128, 512, 1024, 3000, 6000)),
            more,
        )
    ]
    if scene.chance(0.15):
        spec["containers"].append({**container(150, 100), "name": "d"})
    if scene.chance(0.15):
        side = {**container(150, 64), "name": "s", "restartPolicy": "Always"}
        plain = {**container(draw.choice((100, 2000))), "name": "i"}
        spec["initContainers"] = draw.choice(([plain], [side, plain], [plain, side]))
    if scene.chance(0.04):
        spec["overhead"] = {"cpu": "50m", "memory": "20Mi"}
    if scene.chance(0.04):
        spec["resources"] = {"requests": {"cpu": "700m"}}


def ports(scene: ConstraintsFixture, spec: Json) -> None:
    """A host port, sometimes the same as another workload's."""
    if scene.chance(0.12):
        port = {
            "containerPort": 80,
            "hostPort": scene.port,
            "protocol": scene.random.choice(("TCP", "TCP", "UDP")),
        }
        if scene.chance(0.2):
            port["hostIP"] = scene.random.choice(("127.0.0.1", "10.0.0.1"))
        spec["containers"][0]["ports"] = [port]


def nodes(scene: ConstraintsFixture, spec: Json) -> None:
    """nodeSelector, and required node affinity with every operator."""
    draw = scene.random
    if scene.chance(0.1):
        spec["nodeSelector"] = {"tier": draw.choice(("web", "batch"))}
    if scene.chance(0.05):
        spec.setdefault("nodeSelector", {})[ZONE] = draw.choice(scene.zones)
    if scene.chance(0.25):
        terms = [
            {"matchExpressions": [_expression(scene) for _ in range(draw.choice((1, 1, 1, 2)))]}
            for _ in range(draw.choice((1, 1, 2)))
        ]
        if scene.chance(0.05):
            terms = [{}]
        elif scene.chance(0.06):
            terms = [
                {
                    "matchFields": [
                        {
                            "key": "metadata.name",
                            "operator": draw.choice(("In", "NotIn")),
                            "values": [draw.choice(scene.nodes or ("nobody",))],
                        }
                    ]
                }
            ]
        spec.setdefault("affinity", {})["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    if scene.chance(0.06):
        wish = {
            "weight": draw.choice((1, 50, 100)),
            "preference": {"matchExpressions": [_expression(scene)]},
        }
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[PREFERRED] = [wish]


def _expression(scene: ConstraintsFixture) -> Json:
    key, operator, values = scene.random.choice(
        (
            ("tier", "In", ("web", "batch")),
            ("tier", "In", ("any",)),
            ("tier", "NotIn", ("batch",)),
            ("gen", "Exists", ()),
            ("gen", "DoesNotExist", ()),
            ("gen", "Gt", ("4",)),
            ("gen", "Lt", ("6",)),
            ("gen", "NotIn", ("1", "2")),
            (ZONE, "In", (scene.random.choice(scene.zones),)),
            (ZONE, "NotIn", (scene.random.choice(scene.zones),)),
            (HOST, "NotIn", (scene.random.choice(scene.nodes or ("nobody",)),)),
        )
    )
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def tolerations(scene: ConstraintsFixture, spec: Json) -> None:
    """Tolerations of one taint, of one effect, or of everything."""
    if scene.chance(0.35):
        spec["tolerations"] = [
            scene.random.choice(
                (
                    {"key": "dedicated", "operator": "Exists"},
                    {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
                    {"key": "dedicated", "operator": "Equal", "value": "b"},
                    {"operator": "Exists", "effect": "NoExecute"},
                    {"operator": "Exists"},
                )
            )
        ]


def _selector(scene: ConstraintsFixture, app: str) -> Json:
    if scene.chance(0.12):
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "other"]}]}
    if scene.chance(0.04):
        return {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    return {"matchLabels": {"app": app}}


def term(scene: ConstraintsFixture, app: str, key: str) -> Json:
    """A required term between pods: in its own namespace, in named ones, or in those
    that a selector matches."""
    found: Json = {"labelSelector": _selector(scene, app), "topologyKey": key}
    where = 1.0 - scene.random.random()
    if where < 0.1:
        found["namespaces"] = scene.random.choice((["ns0"], ["ns1"], ["ns0", "ns1"]))
    elif where < 0.2:
        found["namespaceSelector"] = scene.random.choice(({}, {"matchLabels": {"team": "red"}}))
    if scene.chance(0.04):  # the API server merges it into the selector if the pod has the label
        found["matchLabelKeys"] = ["rev"]
        mine = [{"key": "rev", "operator": "In", "values": [scene.rev]}] if scene.rev else []
        found["labelSelector"].setdefault("matchExpressions", []).extend(mine)
    return found


def neighbours(scene: ConstraintsFixture, spec: Json) -> None:
    """Affinity and anti-affinity to its own workload and to others."""
    draw, chosen = scene.random, 1.0 - scene.random.random()
    if chosen < 0.14:
        terms = {
            "podAntiAffinity": {REQUIRED: [term(scene, scene.own, draw.choice(_HOST_OR_ZONE))]}
        }
    elif chosen < 0.22:
        terms = {
            "podAntiAffinity": {
                REQUIRED: [term(scene, draw.choice(scene.apps), draw.choice((HOST, ZONE)))]
            }
        }
    elif chosen < 0.32:
        kinds = (*scene.apps, scene.own)
        terms = {
            "podAffinity": {
                REQUIRED: [
                    term(scene, draw.choice(kinds), draw.choice((HOST, ZONE)))
                    for _ in range(draw.choice((1, 1, 1, 2)))
                ]
            }
        }
    elif chosen < 0.35:
        terms = {
            "podAffinity": {REQUIRED: [term(scene, scene.own, ZONE)]},
            "podAntiAffinity": {REQUIRED: [term(scene, scene.own, HOST)]},
        }
    else:
        return
    spec.setdefault("affinity", {}).update(terms)


def spread(scene: ConstraintsFixture, spec: Json) -> None:
    """One topology spread constraint, or two at once."""
    chosen = 1.0 - scene.random.random()
    if chosen < 0.2:
        spec["topologySpreadConstraints"] = [
            _constraint(scene, scene.random.choice((HOST, ZONE, ZONE)))
        ]
    elif chosen < 0.25:
        spec["topologySpreadConstraints"] = [_constraint(scene, ZONE), _constraint(scene, HOST)]


def _constraint(scene: ConstraintsFixture, key: str) -> Json:
    draw = scene.random
    must = draw.choice(("DoNotSchedule",) * 4 + ("ScheduleAnyway",))
    found: Json = {
        "maxSkew": draw.choice((1, 1, 2, 3)),
        "topologyKey": key,
        "whenUnsatisfiable": must,
        "labelSelector": _selector(
            scene, scene.own if scene.chance(0.9) else draw.choice(scene.apps)
        ),
    }
    if must == "DoNotSchedule" and scene.chance(0.2):
        found["minDomains"] = draw.choice((2, 3))
    if scene.chance(0.2):
        found["nodeTaintsPolicy"] = "Honor"
    if scene.chance(0.1):
        found["nodeAffinityPolicy"] = "Ignore"
    if scene.chance(0.1):
        found["matchLabelKeys"] = ["rev"]
    return found


#: : In the order of the random draws.
WISHES: tuple[Wish, ...] = (resources, ports, nodes, tolerations, neighbours, spread)


def wish(scene: ConstraintsFixture) -> Json:
    """A pod spec with some of the constraints."""
    spec: Json = {}
    for each in WISHES:
        each(scene, spec)
    return spec


def labels(scene: ConstraintsFixture, workload: str) -> dict[str, str]:
    """Labels of the pods of a workload."""
    return {"app": scene.own, **({"rev": scene.rev} if scene.rev else {}), "of": workload}
