"""Plans with the code of the artifact and only the standard library.

Run as a file by a Python without site-packages (`python -I -S`), never imported. Arguments: the
folder that stands for /var/task, and a file with pickled arguments of `plan_cluster`. Standard
output has, as JSON, the plan and the loaded modules.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path


def main(task: str, given: str) -> None:
    """Makes one plan."""
    sys.path.insert(0, task)
    sys.dont_write_bytecode = True
    snapshot, policy, memory, now, seed = pickle.loads(Path(given).read_bytes())
    import msgspec  # after the path is set

    from chalicelib.plan.planner import plan_cluster

    plan, _ = plan_cluster(snapshot, policy, memory, now, seed)
    print(json.dumps({"plan": msgspec.json.encode(plan).decode(), "modules": sorted(sys.modules)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
