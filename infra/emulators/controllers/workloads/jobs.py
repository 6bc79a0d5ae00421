"""Jobs in their simplest form: create pods until enough have succeeded. Failures are retried indefinitely."""

from __future__ import annotations

from collections.abc import Callable

from infra.emulators.controllers.object_writes import by_controller, condition, is_true, with_conditions, write_status
from infra.emulators.controllers.workloads.replica_sets import is_active, new_pod
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.store import ObjectStore


class Jobs:
    """The Job controller of one store. Its pods terminate by the kubelet's run-seconds annotation."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Start missing pods and count completed ones."""
        jobs = self._store.list("jobs", None, "batch")
        if not jobs:
            return
        pods = by_controller(self._store.list("pods"))
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"] and not is_true(job, "Complete"):
                self._run(job, pods.get(job["metadata"]["uid"], []))

    def _run(self, job: KubeObject, pods: list[KubeObject]) -> None:
        active = sum(is_active(pod) for pod in pods)
        done = sum(dig(pod, "status", "phase") == "Succeeded" for pod in pods)
        left = job["spec"]["completions"] - done
        for _ in range(min(job["spec"]["parallelism"], left) - active):
            self._store.create("pods", new_pod(job, job["spec"]["template"]))
            active += 1
        status: KubeObject = {"active": active, "succeeded": done}
        if left <= 0:
            complete = condition("Complete", value=True, reason="CompletionsReached")
            status["conditions"] = with_conditions(job, self._clock(), complete)
        write_status(self._store, "jobs", job, status, "batch")
