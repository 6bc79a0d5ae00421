"""Reports what this version does not simulate, so that such a pod never silently fits.

This covers device claims, pods that exceed a reading limit (snapshot/input_limits.py), and pods of schedulers whose
rules are not simulated. A class with one of them is neither promised a node nor moved to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.pod import PodClass
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode

_DEFAULT = "default-scheduler"

# What is not simulated, with its name in the answer, in the order of the answer.
_CARRIED: tuple[tuple[str, Callable[[PodClass, frozenset[str]], bool]], ...] = (
    ("excess", lambda cls, _: bool(cls.excess)),
    ("resource claims", lambda cls, _: bool(cls.resource_claims)),
    ("scheduler", lambda cls, known: cls.scheduler not in known),
)
# Features that are reported with more than their own name.
_NAMED: dict[str, Callable[[PodClass], str]] = {
    "excess": lambda cls: cls.excess,
    "scheduler": lambda cls: f"scheduler {cls.scheduler}",
}


class NotSimulated:
    """Finds the features of each class that are not simulated. Schedulers named in the policy count as the default
    scheduler under another name."""

    def __init__(self, classes: Sequence[PodClass], options: Options) -> None:
        self._classes = classes
        self._schedulers = frozenset({_DEFAULT, *options.bypassed_scheduler_names, *options.allowed_scheduler_names})
        self._known: dict[int, tuple[Reason, ...]] = {}

    def reasons(self, at: int) -> tuple[Reason, ...]:
        """Return one reason per feature that is not simulated; () for a class that is fully simulated."""
        found = self._known.get(at)
        if found is None:
            cls = self._classes[at]
            found = self._known[at] = tuple(
                Reason.of(ReasonCode.NOT_SIMULATED, what=_NAMED.get(name, lambda _, name=name: name)(cls))
                for name, carried in _CARRIED
                if carried(cls, self._schedulers)
            )
        return found
