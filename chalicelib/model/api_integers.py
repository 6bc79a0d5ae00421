"""Whole numbers as the Kubernetes API has them, for the fields of what is read.

Why not `int`: msgspec reads numbers of any length into it, and what is larger than 64 bits can neither be written as
JSON again nor put into an array. An object with such a number is malformed, and is a gap like any other one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
