"""Outscaler: a Kubernetes cluster autoscaler that runs outside the clusters it scales.

snapshot the cluster, plan what to change, dispatch the plan, execute each action, record what happened.
The layers and what each may import are in pyproject.toml (import-linter) and docs/architecture.md.
"""

import warnings
from typing import Final

#: The only statement of the release. pyproject.toml, the command, the HTTP clients and `make release` read it.
__version__: Final = "0.2.0"

# The zip for Lambda leaves out charset_normalizer: only bytes are read of answers, never text of an unknown encoding.
warnings.filterwarnings("ignore", message="Unable to find acceptable character detection dependency")
