"""Four timers run at once, and none is reset by a process restart
(docs/reference/node-groups.md "State across passes").

The runner uses a process that never dies and one that dies after every
function, and compares all plans.
"""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers import objects
from infra.emulators.kube.faults import KubeFault
from tests.scenario.policies import document, refusal
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

GROUP = "MachineDeployment/default/{}"
OPTIONS = {
    "maxNodeProvisionTime": "8m",
    "scaleDownUnneededTime": "10m",
    "scaleDownDelayAfterAdd": "1m",
}


def _over_time(world: ScenarioWorld, what: Any) -> set[float]:
    """Its values in the memory after each pass, where there are any."""
    found = set()
    for memory in world.passes:
        try:
            found.add(what(memory["shop"]))
        except KeyError:
            continue
    return found


@scenario(quick=True, grain=20.0)
def test_timers_backoff_requests_and_first_seen_times_survive_any_restart(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document(options=OPTIONS))
    world.seed(
        objects.machine_deployment("base", 2, 1, 2),
        *(
            objects.machine_deployment(name, 0, 0, 5, labels={"pool": name})
            for name in ("full", "lame")
        ),
    )
    world.minutes(2)
    world.cluster.capi.fail_next("default/lame", "never-joins", 5)
    full = KubeFault(**refusal(403, "exceeded quota: machines"))
    world.line.ask = lambda method, path: (
        full if method == "PATCH" and "/full/scale" in path else None
    )
    world.seed(
        *(
            objects.deployment(name, replicas=1, cpu="3", nodeSelector={"pool": name})
            for name in ("full", "lame")
        )
    )
    world.minutes(4)

    memory = world.memory()
    timers, since = dict(world.last_known_nodes()), world.group_memory(GROUP.format("lame")).request
    failed = world.group_memory(GROUP.format("full")).backoff
    assert len(timers) == 2
    assert since is not None
    assert failed is not None
    (machine,) = memory.unregistered
    seen = memory.unregistered[machine]

    world.minutes(3)  # no timer has expired yet

    for name, known in timers.items():
        assert _over_time(world, lambda kept, name=name: kept["nodes"][name]["unneeded_since"]) == {
            known.unneeded_since
        }
    assert _over_time(
        world, lambda kept: kept["groups"][GROUP.format("lame")]["request"]["since"]
    ) == {since.since}
    assert _over_time(
        world, lambda kept: kept["groups"][GROUP.format("full")]["backoff"]["until"]
    ) == {failed.until}
    assert _over_time(world, lambda kept: kept["unregistered"][machine]) == {seen}

    world.minutes(12)  # all timers have expired, each at its own time

    plans = world.plans()
    began = min(known.unneeded_since for known in timers.values())
    removed = [plan["at"] for plan in plans if plan.get("removals")]
    assert removed
    assert 600.0 < removed[0] - began <= 660.0
    given_back = [
        plan["at"]
        for plan in plans
        if any(each["kind"] == "discard" for each in plan.get("repairs", ()))
    ]
    assert given_back
    assert 480.0 <= given_back[0] - seen <= 560.0
    tried = [
        plan["at"]
        for plan in plans
        for up in plan.get("scale_ups", ())
        if up["group"] == GROUP.format("full")
    ]
    assert len(tried) > 1
    assert 0.0 <= tried[1] - failed.until <= 60.0
