"""The import budget: a cold start that has a kubeconfig loads no AWS SDK and never the kubernetes package."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("boto3", "botocore", "kubernetes", "pynamodb", "chalice")


@pytest.mark.parametrize(
    "module",
    [
        "client",
        "configmaps",
        "connect",
        "nodes",
        "pods",
        "events",
        "secrets",
    ],
)
def test_importing_a_module_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, chalicelib.kube.{module}; print(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
