"""The array types of the planner, named once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Amounts are capped so that sums of many of them stay inside 64 bits.
LARGEST = 2**56
