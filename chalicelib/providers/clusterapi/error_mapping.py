"""Maps the failure texts of infrastructure providers to error classes.

Cluster API has no field for "sold out" or "over quota", only reasons and messages, whose wording each infrastructure
provider chooses. The class decides whether the next group is tried in the same pass and whether the operator is
notified. A wrong guess only results in a backoff of the wrong class.
"""

from __future__ import annotations

import re

from chalicelib.providers.errors import OutOfStock, QuotaExceeded, Throttled, Unknown

# The first matching row decides. A limit on calls is not a limit on machines; "no capacity within your quota" is a
# quota.
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
    """Return the name of the provider error class for a reason and a message, `Unknown` if none matches."""
    text = f"{reason} {message}"
    return next((cls for pattern, cls in _PATTERNS if pattern.search(text)), Unknown.__name__)
