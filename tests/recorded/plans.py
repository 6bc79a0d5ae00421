"""The recorded plans: which cases there are, and what `outscaler plan … -o json`
answers to each of them.

A case is a folder of objects and a few passes one after the other, each with the memory that the
one before saved. What counts are the bytes of each pass: what it prints, without the seconds it
took, and the memory file it writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chalicelib.cli.main import main
from tests.property import clusters
from tests.recorded import extras
from tests.reference_data import SHARED

CAPTURES = SHARED / "data" / "captures"
RANDOM = 200
SHOP_NOW = ("2026-11-21T07:20:54Z", "2026-11-21T07:21:54Z", "2026-11-21T07:36:00Z")
RANDOM_NOW = ("2026-05-28T20:26:40Z", "2026-05-28T20:27:40Z", "2026-05-28T20:39:00Z")
SETTLED_NOW = ("2026-11-23T00:00:00Z", "2026-11-23T00:15:00Z")
_TIMINGS = re.compile(rb'"timings": \{[^}]*\}')


class Case(NamedTuple):
    """fill: writes the folder's files and answers further words of the command; times:
    the instants of the passes."""

    name: str
    fill: Callable[[Path], list[str]]
    times: tuple[str, ...]
    shared: bool = False


class Recording(NamedTuple):
    """Hex SHA-256 of what is read and of what is answered, and the answer
    itself, a document per pass."""

    read: str
    answered: str
    documents: bytes


def cases() -> Iterator[Case]:
    """All cases in order: random clusters first, then captured ones."""
    for seed in range(RANDOM):
        yield Case(
            f"random/{seed}", _random(seed), RANDOM_NOW if seed % 3 == 0 else RANDOM_NOW[::2]
        )
    for capture in ("shop-busy", "shop-quiet"):
        for name, words in _SHOP:
            yield Case(
                f"{capture}/{name}", _captured(CAPTURES / capture, words), SHOP_NOW, shared=True
            )
    for name in ("15", "2040", "2049", "2055", "21", "26", "5", "9"):
        for expander in ("least-waste", "least-cost"):
            words = [
                "--option",
                f"expander={expander}",
                "--option",
                "balanceSimilarNodeGroups=true",
            ]
            yield Case(
                f"settled/{name}/{expander}",
                _captured(CAPTURES / "settled" / name, words, _settled),
                SETTLED_NOW,
                shared=True,
            )


def record(case: Case) -> Recording:
    """Plan for it as the command does."""
    with tempfile.TemporaryDirectory() as made:
        folder, memory = Path(made) / "cluster", Path(made) / "memory.json"
        folder.mkdir()
        words = ["plan", "--snapshot", str(folder), *case.fill(folder)]
        read = _digest_of(folder)
        answers = []
        for now in case.times:
            remembered = ["--memory", str(memory)] if memory.exists() else []
            answers.append(
                _printed(
                    [*words, "--now", now, *remembered, "--save-memory", str(memory), "-o", "json"]
                )
            )
            answers.append(memory.read_bytes() if memory.exists() else b"")
    documents = b"".join(answers)
    return Recording(read, hashlib.sha256(documents).hexdigest(), documents)


def _printed(words: list[str]) -> bytes:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(words)
    return f"exit {code}\n".encode() + _TIMINGS.sub(b'"timings": {}', out.getvalue().encode())


def _digest_of(folder: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        whole.update(f"{file.name} {len(data)}\n".encode() + data)
    return whole.hexdigest()


def _random(seed: int) -> Callable[[Path], list[str]]:
    def fill(folder: Path) -> list[str]:
        made = clusters.make(seed)
        for name, items in made.lists.items():
            _write(folder / f"{name}.json", {"apiVersion": "v1", "kind": "List", "items": items})
        _write(folder / "manifest.json", made.manifest)
        objects = extras.rule_objects(seed)
        if objects:
            _write(folder / "rules.json", {"apiVersion": "v1", "kind": "List", "items": objects})
        (folder / "policy.yaml").write_text(extras.policy(seed))
        words = ["--policy", str(folder / "policy.yaml"), *extras.arguments(seed)]
        settings = [setting for setting in made.settings if not setting.startswith("expander")]
        return words + [word for setting in settings for word in ("--option", setting)]

    return fill


def _captured(
    source: Path, words: list[str], names: Callable[[Path], list[str]] | None = None
) -> Callable[[Path], list[str]]:
    def fill(folder: Path) -> list[str]:
        for file in names(source) if names else sorted(each.name for each in source.iterdir()):
            (folder / file).write_bytes((source / file).read_bytes())
        (folder / "policy.yaml").write_text(extras.plain())
        return ["--policy", str(folder / "policy.yaml"), *words]

    return fill


def _settled(source: Path) -> list[str]:
    return [file.name for file in sorted(source.iterdir()) if file.name != "scheduler.json"]


def _write(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document, sort_keys=True))


_SHOP = (
    *(
        (name.replace(", ", "+"), ["--option", f"expander=[{name}]", "--seed", "7"])
        for name in extras.EXPANDERS
    ),
    ("balanced", ["--option", "balanceSimilarNodeGroups=true", "--option", "expander=least-cost"]),
    ("unneeded", ["--assume-unneeded-for", "25m", "--option", "scaleDownUtilizationThreshold=0.9"]),
    (
        "more-pods",
        ["--add-pods", "30\N{MULTIPLICATION SIGN}shop/web", "--option", "maxNodesTotal=16"],
    ),
    ("node-gone", ["--remove-node", "general-a-0", "--group", "general-b:max=20,min=4"]),
    (
        "compared",
        [
            "--compare-option",
            "expander=most-pods",
            "--compare-option",
            "balanceSimilarNodeGroups=true",
        ],
    ),
)
