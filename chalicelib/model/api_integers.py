"""Bounded integer types of the Kubernetes API, for the fields of decoded objects.

`int` cannot be used: msgspec decodes numbers of any length into it, and a number above 64 bits can neither be written
as JSON again nor put into an array. An object with such a number is malformed and is reported as missing data like any
other.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
