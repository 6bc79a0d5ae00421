"""spec.mode: whether anything happens."""

from enum import StrEnum


class Mode(StrEnum):
    """`off` does nothing, `shadow` plans and explains but changes nothing, `active` acts.

    Only runtime/mode_guard.py reads it."""

    OFF = "off"
    SHADOW = "shadow"
    ACTIVE = "active"
