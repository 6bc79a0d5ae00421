"""What class of trouble the words of an infrastructure provider mean (clusterapi.md §7, D25).

Cluster API has no field for "sold out" or "over quota"; there are only reasons and messages, which every infrastructure
provider words as it likes. The class decides whether the next group is bought in the same pass and whether a person is
told, so the words are worth reading; a wrong guess costs a back-off of the wrong name and nothing else.
"""

from __future__ import annotations

import re

from chalicelib.providers.errors import OutOfStock, QuotaExceeded, Throttled, Unknown

# The first row that fits counts. A limit on calls is no limit on machines; "no capacity within your quota" is a quota.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"throttl|rate.?limit|limit.?rate|request.?limit|too.?many.?requests", Throttled.__name__),
    (r"out.?of.?stock|no.?stock|limited.?availability", OutOfStock.__name__),
    (r"quota|limit(?!ed|range)", QuotaExceeded.__name__),
    (
        r"capacity|stock|sold.?out|exhausted|sku.?not.?available|insufficient.?resources|allocation.?failed|no.?valid.?host",
        OutOfStock.__name__,
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), cls) for pattern, cls in _WORDS)


def failure_class(reason: str, message: str) -> str:
    """The name of the provider error class that a reason and a message speak of, `Unknown` where they do not."""
    text = f"{reason} {message}"
    return next((cls for pattern, cls in _PATTERNS if pattern.search(text)), Unknown.__name__)
