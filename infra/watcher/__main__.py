"""Starts the watcher: `python -m infra.watcher`. See docs/watcher.md."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from chalicelib.cluster.connect import connect
from chalicelib.model.errors import OutscalerError
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.watcher.settings import from_environment
from infra.watcher.watcher import ClusterWatcher, NotPosted, sender


def main() -> int:
    """Run until the container is stopped; return 1 where it cannot go on."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        settings = from_environment(os.environ)
        settings.seal_key()
        kube = connect(
            KubernetesAccess(kubeconfig_file=settings.kubeconfig),
            _no_secret,
            clock=time.time,
            files=True,
        )
        ClusterWatcher(settings, kube, sender(settings)).run()
    except OutscalerError as error:
        sys.stderr.write(f"outscaler-watcher: {error}\n")
    return 1


def _no_secret(name: str) -> str:
    raise NotPosted(f"{name}: there are no secrets of AWS here")


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
