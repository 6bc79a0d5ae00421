"""Corrects differences between moto and AWS that affect a deployment: each module replaces one
behaviour of moto's classes.

The replacements apply to the whole process, like moto's state. Each module says what it corrects.
"""

from __future__ import annotations

from functools import cache

from infra.emulators.moto_gaps import answers, event_sources, rest_apis, stack_resources, stacks


@cache
def close() -> None:
    """Install the replacements, once per process."""
    for piece in (answers, rest_apis, event_sources, stack_resources, stacks):
        piece.install()
