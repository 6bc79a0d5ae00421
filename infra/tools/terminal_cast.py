"""Draws commands and their output as an animated terminal, for the README:
`python -m infra.tools.terminal_cast > docs/images/plan.svg`.

The text is that of docs/start.md, whose output a test compares with the commands. The picture is an
SVG without a script; its animation is CSS, which web pages show in a picture, too. It begins when
the first command has answered, because many viewers show the first frame alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PAGE, SHOWN = ROOT / "docs" / "start.md", ("plan", "explain")
PER_KEY, PER_LINE, PAUSE = 0.045, 0.06, 2.0
"""Seconds: of a typed character, between lines of output, and before the next command."""
WIDEST, ROWS = 104, 30
_CHARACTER, _LINE, _MARGIN = 8.2, 18, 16


class CastLine(msgspec.Struct, frozen=True):
    """A line of the terminal. at: seconds from the start; typed: whether a person types it."""

    at: float
    text: str
    typed: bool = False


def steps(page: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (command, lines of output) of the page's blocks that are shown."""
    blocks = page.split("```")[1::2]
    pairs = pairwise(blocks)
    found = [
        (first[3:].strip(), second.strip("\n").splitlines())
        for first, second in pairs
        if first[:3] == "sh\n" and second[:1] == "\n"
    ]
    return tuple(
        (command, tuple(output))
        for command, output in found
        if "\n" not in command and command.split()[1] in SHOWN
    )


def screens(
    found: Sequence[tuple[str, Sequence[str]]],
) -> Iterator[tuple[float, float, tuple[CastLine, ...]]]:
    """Return (begin, end, lines) of each command, which has the screen for itself."""
    now = 0.0
    for command, output in found:
        begin, lines = now, [CastLine(now, f"$ {command}", typed=True)]
        now += PER_KEY * len(command) + 0.4
        for line in output[: ROWS - 1]:
            lines.append(CastLine(now, _fitting(line)))
            now += PER_LINE
        now += PAUSE + 0.12 * len(output)
        yield begin, now, tuple(lines)


def svg(page: str) -> str:
    shown = tuple(screens(steps(page)))
    total = shown[-1][1]
    filled = max(line.at for line in shown[0][2]) + 0.2
    rows = max(len(lines) for _, _, lines in shown)
    width, height = int(2 * _MARGIN + WIDEST * _CHARACTER), 2 * _MARGIN + rows * _LINE
    style, body = [], []
    for number, (_, end, lines) in enumerate(shown):
        body.append(f'<g class="s{number}">')
        for row, line in enumerate(lines):
            name = f"l{number}-{row}"
            style.append(_visible(name, (line.at, end), total, filled))
            kind = f"{name} typed" if line.typed else name
            place = f'x="{_MARGIN}" y="{_MARGIN + (row + 1) * _LINE - 5}"'
            body.append(
                f'<text class="{kind}" {place} xml:space="preserve">{escape(line.text)}</text>'
            )
        body.append("</g>")
    names = ", ".join(command for command, _ in steps(page))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(names)}</title>",
            "<style>",
            (
                "text{font:13.6px ui-monospace,Menlo,Consolas,monospace;fill:#d5dae0}.typed{fill:#"
                "8bd5a5}"
            ),
            (
                "@media(prefers-reduced-motion:reduce){text{animation:none!important}g:not(."
                "s0){display:none}}"
            ),
            "g:not(.s0) text{visibility:hidden}",
            *style,
            "</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _visible(name: str, span: tuple[float, float], total: float, start: float) -> str:
    """Return the style that shows an element in a span of each round. start: of the first round."""
    begin, end = span
    first, last = 100 * begin / total, 100 * end / total
    frames = [f"{first:.2f}%{{visibility:visible}}", f"{last:.2f}%,100%{{visibility:hidden}}"]
    if begin:
        frames.insert(0, "0%{visibility:hidden}")
    if end >= total:
        frames[-1] = "100%{visibility:visible}"
    return (
        f".{name}{{animation:{name} {total:.1f}s step-end -{start:.2f}s infinite}}@keyframes "
        f"{name}{{{''.join(frames)}}}"
    )


def _fitting(line: str) -> str:
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


if __name__ == "__main__":
    sys.stdout.write(svg(PAGE.read_text(encoding="utf-8")))
