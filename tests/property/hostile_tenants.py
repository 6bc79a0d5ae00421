"""Objects with which one tenant can make a pass expensive, of every kind that
a namespace may contain.

Each row of CASES makes the objects of one attack; `victims` are the pods of another namespace,
which must be placed as without the attack. `measured` plans in its own process, so that time and
memory are those of one case.

    echo CASE [CLOCK_SECONDS] | python -m tests.property.hostile_tenants    one case: seconds, MiB,
                                                                            victims placed
"""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import msgspec

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.mode import Mode
from tests import builders
from tests.property.hostile_objects import (
    CASES,
    FULL,
    GROUPS,
    NODES,
    NOW,
    ROOT,
    VICTIMS,
    Json,
    labels_of,
    node,
    pod,
)

_LONGEST = 600  # seconds of CPU


def snapshot(objects: Iterable[Json] = ()) -> Snapshot:
    """The victims' cluster with these objects; an object replaces one of the same name."""
    folder = SnapshotBuilder()
    everything = [*(node(at) for at in range(NODES)), *victims(), *objects]
    folder.add_page(msgspec.json.encode({"kind": "List", "items": everything}), "objects.json")
    groups = tuple(
        msgspec.structs.replace(
            group(at),
            instances=tuple(
                Instance(each.provider_id, node=each.name)
                for each in folder.nodes
                if each.labels.get("group") == f"g{at}"
                or each.provider_id.startswith(f"file://g{at}/")
            ),
        )
        for at in range(GROUPS)
    )
    groups = tuple(msgspec.structs.replace(each, target=len(each.instances)) for each in groups)
    return folder.snapshot("shared", NOW, ObservedGroups(groups))


def group(at: int) -> NodeGroup:
    """A node group of the cluster."""
    made = builders.node(f"t{at}", "4", "16Gi")
    made = msgspec.structs.replace(made, labels=labels_of(f"t{at}", at))
    return NodeGroup(id=f"g{at}", provider="file", min=0, max=200, target=0, template=made)


def victims() -> list[Json]:
    """Pods of another namespace: half of them run, half of them need new nodes."""
    large = [{"resources": {"requests": {"cpu": "3500m", "memory": "8Gi"}}}]
    return [
        *(
            pod(f"v{at}", "victim", node=f"n{at}", labels={"app": "v"}, containers=large)
            for at in range(FULL)
        ),
        *(pod(f"w{at}", "victim", labels={"app": "w"}, containers=large) for at in range(VICTIMS)),
    ]


def planned(
    objects: Iterable[Json], clock: Callable[[], float] | None = None, within: float = 80.0
) -> Plan:
    """The plan for the cluster with these objects."""
    policy = Policy(
        name="shared",
        mode=Mode.SHADOW,
        kubernetes=KubernetesAccess(kubeconfig_file="k"),
        options=Options(max_nodes_per_scale_up=1000),
        providers={"file": {}},
    )
    plan, _ = plan_cluster(
        snapshot(objects),
        policy,
        Memory(first_seen=NOW - 86_400),
        NOW,
        1,
        clock=clock,
        within=within,
    )
    return plan


def served(plan: Plan) -> int:
    """How many of the victims' pending pods have a placement."""
    return sum(key.startswith("victim/w") for promise in plan.promises for key in promise.pods)


class Measured(msgspec.Struct, frozen=True):
    """seconds of CPU for reading and planning; mib: the peak size of the process."""

    seconds: float
    mib: float
    served: int
    gaps: int


def measured(case: str, within: float = 0.0) -> Measured:
    """Runs one case in its own process. within: clock seconds after which the pass
    should end; 0: no clock."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{case} {within}\n")
    server.stdin.flush()
    return msgspec.json.decode(server.stdout.readline(), type=Measured)


@cache
def _server() -> subprocess.Popen[str]:
    """The process whose copies run the cases; it ends with this one. It imports everything once,
    which takes longer than most cases."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.property.hostile_tenants"],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(server.communicate)
    return server


def _largest() -> float:
    """MiB. Linux includes the size of the parent before `exec` in ru_maxrss, so the kernel's peak
    of this image is read where available."""
    status = Path("/proc/self/status")
    if status.exists():
        mark = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(mark.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 * 1024 if sys.platform == "darwin" else 1024
    )


def _run(case: str, within: float) -> bytes:
    objects = list(CASES[case]())
    started = time.process_time()
    plan = planned(objects, time.monotonic if within else None, within or 80.0)
    spent = time.process_time() - started
    return msgspec.json.encode(Measured(spent, _largest(), served(plan), len(plan.gaps)))


def main() -> None:
    """Prints the measurement of each case, a line of standard input."""
    for line in sys.stdin:
        case, _, within = line.partition(" ")
        if pid := os.fork():
            os.waitpid(pid, 0)
            continue
        resource.setrlimit(resource.RLIMIT_CPU, (_LONGEST, _LONGEST))
        answer = b""
        try:
            answer = _run(case.strip(), float(within or 0))
        except Exception:
            traceback.print_exc()
        finally:
            os.write(1, answer + b"\n")
            os._exit(0)


if __name__ == "__main__":
    main()
