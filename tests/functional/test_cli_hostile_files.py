"""A hostile file given to a command costs time in proportion to its length and
is rejected with one line.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chalicelib.cli.main import main
from chalicelib.net.bounded_files import content
from tests.functional.saved_cluster import shop

Said = pytest.CaptureFixture[str]


def laughs(kind: str, levels: int = 12) -> str:
    """Each level has nine aliases of the previous one, as items or as merge keys."""
    lines = [
        "l0: &l0 " + ("[x, x, x, x, x, x, x, x, x]" if kind == "items" else "{a: 1, b: 2, c: 3}")
    ]
    for at in range(1, levels):
        of = ", ".join([f"*l{at - 1}"] * 9)
        lines.append(f"l{at}: &l{at} " + (f"[{of}]" if kind == "items" else f"{{<<: [{of}]}}"))
    return "\n".join(lines) + "\n"


HOSTILE: dict[str, str] = {
    "aliases-of-aliases": laughs("items"),
    "aliases-in-one-object": "kind: Pod\nspec:\n  " + laughs("items").replace("\n", "\n  "),
    "aliases-as-merge-keys": laughs("merge"),
    "aliases-over-documents": "---\n".join(["a: &a " + "[x]\n"] * 3) + "---\n" + laughs("items"),
    "a-long-text-many-times": f"a: &a {'x' * 200_000}\nb: [{', '.join(['*a'] * 5_000)}]\n",
    "an-alias-in-itself": "&a {kind: List, items: [*a]}\n",
    "deep-lists": "[" * 200_000,
    "deep-mappings": "{a: " * 200_000,
    "deep-json": '{"a": ' * 50_000 + "1" + "}" * 50_000,
    "a-number-in-base-sixty": "a: 1" + ":1" * 1_000_000 + "\n",
    "a-tagged-number-in-base-sixty": 'a: !!int "1' + ":1" * 1_000_000 + '"\n',
    "a-fraction-in-base-sixty": "a: 1" + ":1" * 1_000_000 + ".5\n",
    "a-number-of-many-digits": "a: " + "9" * 1_000_000 + "\n",
    "a-json-number-of-many-digits": '{"kind": ' + "9" * 1_000_000 + "}",
    "no-text": "\x00\x01",
    "a-foreign-tag": "a: !!python/object/apply:os.system [x]\n",
}


def add_pods(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--snapshot", str(cluster), "--add-pods", str(file)]


def many_pods(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--snapshot", str(cluster), "--add-pods", f"2x{file}"]


def policy(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--snapshot", str(cluster), "--policy", str(file)]


def memory(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--snapshot", str(cluster), "--memory", str(file)]


def groups(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--snapshot", str(cluster), "--node-groups", str(file)]


def kubeconfig(file: Path, cluster: Path) -> list[str]:
    return ["plan", "--kubeconfig", str(file), "--node-groups", str(cluster / "manifest.json")]


def imported(file: Path, cluster: Path) -> list[str]:
    del cluster
    return ["import", str(file)]


def saved(file: Path, cluster: Path) -> list[str]:
    file.rename(cluster / "pods.json")
    return ["plan", "--snapshot", str(cluster)]


def validated(file: Path, cluster: Path) -> list[str]:
    del cluster
    return ["validate", str(file)]


Command = Callable[[Path, Path], list[str]]
COMMANDS: tuple[Command, ...] = (
    add_pods,
    many_pods,
    policy,
    memory,
    groups,
    kubeconfig,
    imported,
    saved,
    validated,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return shop(tmp_path / "shop")


def refusal(command: list[str], capsys: Said) -> str:
    """The single line of a command that rejects its input quickly."""
    started = time.process_time()
    assert main(command) == 2
    assert time.process_time() - started < 10.0
    said = capsys.readouterr()
    [line] = [each for each in said.err.splitlines() if not each.startswith("warning")]
    assert len(line) < 1_000
    return line


@pytest.mark.parametrize("command", COMMANDS, ids=[each.__name__ for each in COMMANDS])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_file_is_rejected_with_one_line(
    command: Command,
    text: str,
    cluster: Path,
    tmp_path: Path,
    capsys: Said,
) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_text(text, "utf-8")
    line = refusal(command(file, cluster), capsys)
    assert file.name in line or "pods.json" in line
    assert "internal error" not in line


@pytest.mark.parametrize("command", COMMANDS, ids=[each.__name__ for each in COMMANDS])
def test_disk_image_is_not_read_into_memory(
    command: Command, cluster: Path, tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "disk.yaml"
    with file.open("wb") as made:
        made.truncate(2**40)  # sparse: none of its bytes is stored
    assert "too large" in refusal(command(file, cluster), capsys).lower()


def test_saved_cluster_that_decompresses_endlessly_is_rejected(
    cluster: Path, tmp_path: Path
) -> None:
    bomb = tmp_path / "pods.json.gz"
    bomb.write_bytes(gzip.compress(b" " * 5_000_000))
    assert len(content(bomb, 5_000_000)) == 5_000_000
    with pytest.raises(OSError, match="too large"):
        content(bomb, 4_999_999)
    half = tmp_path / "half.json.gz"
    half.write_bytes(bomb.read_bytes()[:-20])
    with pytest.raises(EOFError):
        content(half, 5_000_000)


def test_yaml_aliases_in_normal_use_are_accepted(
    cluster: Path, tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(
        "".join(
            f"kind: Pod\nmetadata: "
            f"{{name: p{at}, namespace: shop, labels: &labels {{app: web}}, annotations: "
            f"*labels}}\n"
            "spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}\n---\n"
            for at in range(500)
        )
    )
    assert main(add_pods(file, cluster)) == 0
    assert capsys.readouterr().out.count("pending as well: shop/p") == 500


def test_rejection_of_a_policy_names_the_exceeded_limit(
    cluster: Path, tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"a" * 300_000)
    assert "keep it under 262144 bytes" in refusal(policy(file, cluster), capsys)
