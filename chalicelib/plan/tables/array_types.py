"""The array types of the planner, named once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

# numpy.typing costs a cold start more than a module of the planner, and means nothing while the program runs.
if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
else:
    Bools = Ints = Floats = np.ndarray

# Amounts are capped so that sums of many of them stay inside 64 bits.
LARGEST = 2**56

# Pods that a node takes at most, whatever it says of itself: products of counts stay inside 64 bits, too.
MOST_PODS = 2**20
# What the pods of a node ask for at most, as it is counted. A node that is so full is held, for its sums are not true.
OVERFULL = 2**61
