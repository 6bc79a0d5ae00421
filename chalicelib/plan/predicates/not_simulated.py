"""What this version does not simulate, said aloud: such a pod never silently fits (architecture §3).

Claims on devices, pods that exceed a limit of what is read of them (snapshot/caps.py), and pods of schedulers whose
rules are not those simulated here. A class with one of them is neither promised a node nor moved to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.pod import PodClass
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode

_DEFAULT = "default-scheduler"

# What is not simulated, with its name in the answer; in the order in which it is named.
_CARRIED: tuple[tuple[str, Callable[[PodClass, frozenset[str]], bool]], ...] = (
    ("excess", lambda cls, _: bool(cls.excess)),
    ("resource claims", lambda cls, _: bool(cls.resource_claims)),
    ("scheduler", lambda cls, known: cls.scheduler not in known),
)
# What is named by more than its own name.
_NAMED: dict[str, Callable[[PodClass], str]] = {
    "excess": lambda cls: cls.excess,
    "scheduler": lambda cls: f"scheduler {cls.scheduler}",
}


class NotSimulated:
    """Says of each class what about it is not simulated. Schedulers named in the policy are taken for the default one
    under another name."""

    def __init__(self, classes: Sequence[PodClass], options: Options) -> None:
        self._classes = classes
        self._schedulers = frozenset({_DEFAULT, *options.bypassed_scheduler_names, *options.allowed_scheduler_names})
        self._known: dict[int, tuple[Reason, ...]] = {}

    def reasons(self, at: int) -> tuple[Reason, ...]:
        """A reason per thing that is not simulated; () for a class that is understood whole."""
        found = self._known.get(at)
        if found is None:
            cls = self._classes[at]
            found = self._known[at] = tuple(
                Reason.of(ReasonCode.NOT_SIMULATED, what=_NAMED.get(name, lambda _, name=name: name)(cls))
                for name, carried in _CARRIED
                if carried(cls, self._schedulers)
            )
        return found
