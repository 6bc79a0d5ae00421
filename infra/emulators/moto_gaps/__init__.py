"""What moto does otherwise than AWS where a deployment meets it: each piece replaces one behaviour of moto's classes.

The replacements hold for the whole process, as moto's state does. docs/local.md lists them.
"""

from __future__ import annotations

from functools import cache

from infra.emulators.moto_gaps import change_sets, event_sources, rest_apis, stack_resources, stacks


@cache
def close() -> None:
    """Put the pieces in place, once per process."""
    for piece in (rest_apis, event_sources, stack_resources, stacks, change_sets):
        piece.install()
