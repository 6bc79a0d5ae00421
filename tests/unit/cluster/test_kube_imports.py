"""The import budget: a cold start with a kubeconfig imports no AWS SDK and
never the kubernetes package.
"""

from __future__ import annotations

import subprocess
import sys

from tests.cases import each_row

HEAVY = ("boto3", "botocore", "kubernetes", "pynamodb", "chalice")


@each_row(
    "module",
    [
        "cluster.client",
        "cluster.connect",
        "cluster.objects",
        "aws.secrets_manager",
    ],
)
def test_kube_module_import_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, chalicelib.{module}; print(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
