"""Outscaler: a Kubernetes cluster autoscaler that runs outside the clusters it scales.

snapshot the cluster, plan what to change, dispatch the plan, execute each action, record what happened.
The layers and what each may import are in pyproject.toml (import-linter) and docs/architecture.md.
"""

from typing import Final

#: The only statement of the release. pyproject.toml, the command, the HTTP clients and `make release` read it.
__version__: Final = "0.1.0"
