"""`python -m tests.benchmarks.hostile_memory [MIB ...]`: how much memory a pass takes for pods that
are made to take as much as they can: each differs from all others, and has as many short values as
the limits of one pod allow.

Each pass runs in its own process, as in Lambda, and reads the pods over HTTP from this one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from tests.benchmarks import pass_memory

NODES = 10
SIZES = (13, 51, 128)
_VALUES, _SELECTED, _LABELS = 5_000, 1_000, 250
Json = dict[str, Any]


def hostile_pod(number: int) -> Json:
    """Return a pod without a node, of about 50 kB."""
    values = [f"{number:x}{at:x}" for at in range(_VALUES)]
    terms = [{"matchExpressions": [{"key": "k", "operator": "NotIn", "values": values}]}]
    selected = [
        {"key": "k", "operator": "NotIn", "values": [f"s{value}" for value in values[:_SELECTED]]}
    ]
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": "tenant",
            "uid": f"u{number}",
            "labels": {f"l{at:x}": f"{number:x}{at:x}" for at in range(_LABELS)},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
                },
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchExpressions": selected},
                        }
                    ]
                },
            },
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }


class HostileObjects(pass_memory.ServedObjects):
    """A small cluster with so many MiB of such pods."""

    def __init__(self, mebibytes: int) -> None:
        super().__init__(NODES, 0)
        one = len(json.dumps(hostile_pod(0), separators=(",", ":")))
        self.pods = max(1, mebibytes * 2**20 // one) - pass_memory.PENDING

    def _pod_at(self, at: int) -> str:
        return json.dumps(hostile_pod(at), separators=(",", ":"))


def grown(mebibytes: int, size: int) -> Json:
    """Return what a pass measured: base and peak in MB, wall in seconds; error where it did not
    end. size: MB of the function, 0 for any."""
    server, kubeconfig = pass_memory.served(
        HostileObjects(mebibytes) if mebibytes else pass_memory.ServedObjects(NODES, 0)
    )
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.pass_memory",
        "--child",
        str(NODES),
        "--size",
        str(size),
    ]
    try:
        done = subprocess.run(
            command, input=kubeconfig, capture_output=True, text=True, check=False
        )
    finally:
        server.shutdown()
    lines: list[Json] = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"stopped"')
    ]
    return lines[0] if lines else {"error": done.stderr[-2000:]}


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hostile_memory")
    parser.add_argument("mebibytes", nargs="*", type=int, default=SIZES, metavar="MIB")
    parser.add_argument(
        "--size", type=int, default=0, metavar="MB", help="memory of the function; 0: any"
    )
    given = parser.parse_args(arguments)
    for mebibytes in given.mebibytes:
        made = grown(mebibytes, given.size)
        if "error" in made:
            print(f"{mebibytes:>4} MiB of pods: {made['error']}")
            return 1
        growth = made["peak"] - made["base"]
        print(
            f"{mebibytes:>4} MiB of pods: {growth:.0f} MB more, peak {made['peak']:.0f} MB, "
            f"{made['wall']:.1f} s"
            f"{'; stopped: ' + made['stopped'] if made['stopped'] else ''}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
