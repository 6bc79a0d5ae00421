"""Returns the memory of large responses to the system as soon as they are released.

glibc raises the size from which it maps memory directly to that of the largest released block. After the first page of
8 MB, all later ones come from the heaps of the threads that read them, which keep what is released: the peak of a pass
with 34,000 pods was 120 MB higher. A fixed size prevents that.
Two heaps are enough, because Python runs one thread at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_SETTINGS = ((_M_MMAP_THRESHOLD, 1 << 20), (_M_TRIM_THRESHOLD, 1 << 17), (_M_ARENA_MAX, 2))  # bytes, bytes, heaps


@functools.cache
def map_large_buffers() -> None:
    """Fix the size for this process; does nothing where the C library is another one."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in _SETTINGS:
            mallopt(setting, value)
