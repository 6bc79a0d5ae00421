"""`python -m tests.benchmarks.measured_watcher`: a process that watches a served
cluster and posts to a folder.

Its first line of input is a kubeconfig as JSON. Then each line is answered by one line: `turn`
reads and posts, `join` makes lists of what was posted, as a pass does.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from chalicelib.cluster.connect import connect
from chalicelib.cluster.list_archive import WatchedLists, list_place, watcher_key
from chalicelib.cluster.watcher_post import WatcherPost
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.watcher.settings import WatcherSettings
from infra.watcher.watcher import ClusterWatcher

SECRET = "a-random-text-for-tests-of-32-chars"


def main() -> int:
    """Answer until the input ends."""
    config: str = json.loads(sys.stdin.readline())["kubeconfig"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "watcher").write_text(SECRET)
        settings = WatcherSettings("bench", "", "", Path(folder), "kube-system", 10.0)
        kube = connect(
            KubernetesAccess(kubeconfig_secret="config"), lambda _: config, clock=time.time
        )
        lists = WatchedLists(list_place(f"{folder}/lists"), time.time)
        sizes: list[int] = []

        def post(made: WatcherPost) -> None:
            sizes.append(len(made.body()))
            lists.store("bench", made)

        watcher = ClusterWatcher(settings, kube, post)
        key = watcher_key("bench", SECRET, "kube-system")
        for line in sys.stdin:
            sizes.clear()
            if line.strip() == "turn":
                found = _measured(watcher.turn)
            else:
                found = _measured(lambda: lists.load("bench", key, "kube-system", 0.0))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({**found, "bytes": sum(sizes), "peak": peak}), flush=True)
    return 0


def _measured(call: Callable[[], object]) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    call()
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - used}


if __name__ == "__main__":
    sys.exit(main())
