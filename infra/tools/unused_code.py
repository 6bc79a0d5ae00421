"""Unused code of what is deployed and of infra: `python -m infra.tools.unused_code`, part of `make test`.

Tests are not users of chalicelib and app.py: code that only a test calls is unused. They are users of infra, whose
emulators exist for them. Exit code 1 names each unused definition that unused_exceptions.py does not except, and each
exception that nothing needs any more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec
from vulture import Vulture

from infra.tools.unused_exceptions import EXCEPTIONS, UnusedException

ROOT = Path(__file__).resolve().parents[2]
_CONFIDENCE = 60  # percent; vulture gives 60 to every definition that nothing names
#: Folders in which unused code is looked for -> the folders whose code counts as its user.
_RUNS = (
    (("app.py", "chalicelib"), ("app.py", "chalicelib", "infra")),
    (("infra",), ("app.py", "chalicelib", "infra", "tests")),
)


class UnusedDefinition(msgspec.Struct, frozen=True, order=True):
    """A definition that nothing names. file: relative to the repository."""

    file: str
    line: int
    kind: str
    name: str


def unused(root: Path = ROOT) -> list[UnusedDefinition]:
    """All of them, the excepted ones included."""
    found: list[UnusedDefinition] = []
    for searched, users in _RUNS:
        vulture = Vulture(ignore_decorators=["@*.route", "@*.lambda_function", "@*.on_*", "@pytest.fixture"])
        vulture.scavenge([str(root / each) for each in users if (root / each).exists()])
        for item in vulture.get_unused_code(min_confidence=_CONFIDENCE):
            file = Path(item.filename).relative_to(root).as_posix()
            if file.startswith(searched):
                found.append(UnusedDefinition(file, item.first_lineno, item.typ, item.name))
    return sorted(found)


def findings(found: Sequence[UnusedDefinition], exceptions: Sequence[UnusedException] = EXCEPTIONS) -> list[str]:
    """One line for each definition that is not excepted and each pattern of an exception that matches nothing."""
    problems = []
    needed: set[tuple[str, str]] = set()
    for each in found:
        matching = [
            (exception.files, name)
            for exception in exceptions
            for name in exception.names
            if fnmatch(each.file, exception.files) and fnmatch(each.name, name)
        ]
        needed.update(matching)
        if not matching:
            problems.append(f"{each.file}:{each.line}: unused {each.kind} {each.name}")
    problems += [
        f"infra/tools/unused_exceptions.py: {exception.files}: {name} is used or gone; delete the exception"
        for exception in exceptions
        for name in exception.names
        if (exception.files, name) not in needed
    ]
    return problems


def main() -> int:
    """Print the findings; 1 if there are any."""
    problems = findings(unused())
    sys.stdout.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
