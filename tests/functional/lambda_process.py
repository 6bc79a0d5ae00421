"""Runs one invocation as Lambda does: a new process with only the unzipped artifact
and the standard library.

Run as a file by a Python without site-packages (`python -I -S`), never imported. Arguments: the
folder that stands for /var/task, the handler as in the template, a file with the event. The
environment is the function's. The last line of standard output has the handler's result, the loaded
modules, those loaded from other folders, and the state of the garbage collection and of OpenBLAS.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path


class LambdaProcessContext:
    """The context that Lambda passes to a function."""

    aws_request_id = "request-for-tests"
    function_name = "function"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:function"

    def get_remaining_time_in_millis(self) -> int:
        """Returns a large value."""
        return 60_000


def main(task: str, handler: str, event: str) -> None:
    """One cold start and one invocation (only the cold start if the event is empty)."""
    given = Path(event).read_text()
    sys.path.insert(0, task)
    sys.dont_write_bytecode = True
    os.chdir(task)
    os.environ["_HANDLER"] = handler
    module, _, name = handler.rpartition(".")
    entered = getattr(importlib.import_module(module), name)
    answer = entered(json.loads(given), LambdaProcessContext()) if given else None
    foreign = [
        name
        for name, one in sys.modules.items()
        if "site-packages" in (getattr(one, "__file__", None) or "")
    ]
    state = {
        "collects": gc.isenabled(),
        "frozen": gc.get_freeze_count(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
    }
    print(
        json.dumps({"answer": answer, "modules": sorted(sys.modules), "foreign": foreign, **state})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
