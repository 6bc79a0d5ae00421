"""Outscaler: a Kubernetes cluster autoscaler that runs outside the clusters it scales.

Here: one package per layer; pyproject.toml and docs/architecture.md say which layer imports which.
Not here: deployment, emulators and tools (infra).
"""

import warnings
from typing import Final

#: The single definition of the release; pyproject.toml, the command, the HTTP clients
#: and `make release` read it.
__version__: Final = "0.2.0"

#: The address of the documentation's pages, which messages name: people who installed
#: the wheel have no docs/.
DOCS: Final = "https://github.com/outscaler/outscaler/blob/main/docs"

# The Lambda zip omits charset_normalizer: responses are read as bytes only, never as
# text of an unknown encoding.
warnings.filterwarnings(
    "ignore", message="Unable to find acceptable character detection dependency"
)
