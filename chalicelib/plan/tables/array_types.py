"""Aliases for the numpy array types that the planner uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

# Importing numpy.typing takes longer at a cold start than a planner module, and it has no effect at run time.
if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
else:
    Bools = Ints = Floats = np.ndarray

# Amounts are capped so that sums of many of them fit into 64 bits.
LARGEST = 2**56

# Upper bound of pods per node, whatever the node reports, so that products of counts fit into 64 bits as well.
MOST_PODS = 2**20
# Upper bound of the counted pod requests of one node. A node at this bound is blocked because its sums are not exact.
OVERFULL = 2**61
