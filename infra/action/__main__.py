"""`python -m infra.action`: the report of the GitHub Action about policies, as Markdown.

What it prints comes from files of a pull request, which a stranger may have opened: output is
inside a fence that it cannot end, and cut where GitHub takes no more.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from glob import glob
from pathlib import Path

import yaml

MARK = "<!-- outscaler -->"
LONGEST = 60_000  # characters; GitHub takes 65,536 in a comment
_OUTPUT = 15_000  # of one command
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_UNREADABLE = 3  # the exit code of a plan for which a vendor's groups could not be read


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report. Exit codes: 0 all policies are valid and could be planned, 1
    not all, 2 there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.action", description="report on policies"
    )
    parser.add_argument(
        "--policies", required=True, help="patterns of policy documents, one a line"
    )
    parser.add_argument(
        "--snapshots", default="", help="a folder with a captured cluster for each name"
    )
    parser.add_argument("--out", required=True, type=Path, help="the file to write")
    given = parser.parse_args(arguments)
    patterns = [line.strip() for line in given.policies.splitlines() if line.strip()]
    files = sorted(
        {
            name
            for pattern in patterns
            for name in glob(pattern, recursive=True)
            if Path(name).is_file()
        }
    )
    sections = [
        section(Path(name), Path(given.snapshots) if given.snapshots else None) for name in files
    ]
    right = sum(right for right, _ in sections)
    given.out.write_text(report(right, [text for _, text in sections]), "utf-8")
    return 2 if not files else int(right < len(files))


def report(right: int, sections: Sequence[str]) -> str:
    """Return the whole text, with as many sections as a comment has room for."""
    head = (
        f"{right} of {len(sections)} policies are valid."
        if sections
        else "No policy matches the patterns."
    )
    text, shown = f"{MARK}\n### Outscaler\n\n{head}\n", 0
    while shown < len(sections) and len(text) + len(sections[shown]) < LONGEST:
        text += f"\n{sections[shown]}\n"
        shown += 1
    return text + (
        f"\n{len(sections) - shown} more are left out.\n" if shown < len(sections) else ""
    )


def section(file: Path, snapshots: Path | None) -> tuple[bool, str]:
    """Return whether a policy is valid and could be planned, and what the report says about it."""
    if (problem := refusal(file)) or (snapshots and (problem := refusal(snapshots))):
        return False, "\n\n".join([fenced(str(file)), "#### Not read", problem])
    place = str(file) if file.is_absolute() else f"./{file}"  # never read as a flag
    code, output = outscaler("validate", place)
    parts = [f"#### {'Valid' if not code else 'Not valid'}", fenced(output)]
    folder = snapshots / cluster(file) if snapshots and cluster(file) else None
    if not code and folder and (problem := refusal(folder) or refusal_below(folder)):
        parts += ["#### Not planned", problem]
        code = 1
    elif not code and folder and folder.is_dir():
        code, output = outscaler("plan", f"--snapshot={folder}", "--policy", place)
        parts += ["#### Plan", fenced(output)]
        code = 0 if code == _UNREADABLE else code
    return not code, "\n\n".join([fenced(str(file)), *parts])


def refusal(path: Path) -> str:
    """Return why a path is not followed; empty if it is. A link in a pull request may lead to any
    file of the machine, and errors quote what they cannot read."""
    here = Path.cwd().resolve()
    absolute = Path(os.path.normpath(here / path))
    if not path.is_absolute() and not absolute.is_relative_to(here):
        return "It is outside of the checkout."
    if path.is_symlink() or (absolute.exists() and absolute.resolve() != absolute):
        return "It is a symbolic link, or in a folder that is one. Links are not followed."
    return ""


def refusal_below(folder: Path) -> str:
    """Return why the files of a folder are not read; empty if they are."""
    if any(path.is_symlink() for path in folder.rglob("*")):
        return "The captured cluster has a symbolic link. Links are not followed."
    return ""


def cluster(file: Path) -> str:
    """Return the name of a policy's cluster; empty where the document has none."""
    try:
        name = yaml.safe_load(file.read_text("utf-8"))["metadata"]["name"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def outscaler(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "chalicelib", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def fenced(text: str) -> str:
    """Return the text in a block of code, cut, with a fence that is longer than
    any row of backticks in it."""
    text = text.rstrip()
    if len(text) > _OUTPUT:
        text = f"{text[:_OUTPUT]}\n…"
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{ticks}\n{text}\n{ticks}"


if __name__ == "__main__":
    sys.exit(main())
