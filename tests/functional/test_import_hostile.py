"""`outscaler import` refuses hostile files with one line, in a time that their length bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.functional.import_runs import (
    ALICLOUD,
    GIVEN,
    Said,
    container,
    imported,
    manifest,
    workload,
    written,
)
from tests.functional.test_cli_hostile_files import HOSTILE

DEPLOYMENT = workload(container(["./cluster-autoscaler", *ALICLOUD]))


@pytest.mark.parametrize("name", HOSTILE)
def test_IMP_39_a_hostile_file_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    refused = imported(capsys, written(tmp_path, HOSTILE[name]), *GIVEN)
    assert (refused.code, refused.out) == (2, "")
    assert len(refused.err.splitlines()) == 1
    assert "deploy.yaml" in refused.err


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a: " + b"x" * (5 * 2**20), "is too large for settings"),
        ("args: [\u00e9]".encode("latin-1"), "is not UTF-8 text"),
        (b"kind: Pod\nname: \0\n", "is neither JSON nor YAML"),
        (b"kind: Pod\nspec: !!python/object:x {}\n", "is neither JSON nor YAML"),
    ],
)
def test_IMP_39_a_file_that_is_not_text_is_refused_in_one_line(
    data: bytes, says: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_bytes(data)
    refused = imported(capsys, str(path), *GIVEN)
    assert (refused.code, refused.out) == (2, "")
    assert len(refused.err.splitlines()) == 1
    assert says in refused.err


def test_IMP_39_two_hundred_documents_around_the_autoscaler_are_read(
    tmp_path: Path, capsys: Said
) -> None:
    others = [{"kind": "ServiceAccount", "metadata": {"name": f"a{at}"}} for at in range(200)]
    found = imported(capsys, written(tmp_path, manifest(*others, DEPLOYMENT)), *GIVEN)
    assert found.code == 0
    assert [verdict for verdict, _ in found.rows_of("ServiceAccount a0")] == ["no effect"]


def test_a_document_that_cannot_be_read_is_named_and_the_autoscaler_beside_it_counts(
    tmp_path: Path, capsys: Said
) -> None:
    text = "---\nkind: Secret\na: [\n---\n" + manifest(DEPLOYMENT) + "---\n{{ if x }}\nkind: Y\n"
    lines = text.splitlines()
    opened = imported(capsys, written(tmp_path, text), *GIVEN)
    assert opened.code == 0, opened.err
    rows = [row for row in opened.rows if row["word"] == "a document"]
    assert [row["verdict"] for row in rows] == ["missing", "missing"]
    assert rows[0]["line"] == 4
    assert rows[1]["line"] in (len(lines) - 1, len(lines))
    (flag,) = [row for row in opened.rows if row["word"].startswith("--nodes")]
    assert "--nodes" in lines[flag["line"] - 1]
    refused = imported(capsys, written(tmp_path, "a: [\n---\nkind: Service\n"), *GIVEN)
    assert refused.code == 2
    assert "deploy.yaml:2" in refused.err


MALFORMED: tuple[Any, ...] = (None, 1, "x", [], {}, [None], [[]], {"": None}, True, 1e300)


@pytest.mark.parametrize(
    "path",
    [
        ("metadata",),
        ("spec", "template", "spec", "volumes"),
        ("spec", "template", "spec", "containers", 0, "env"),
        ("spec", "template", "spec", "containers", 0, "envFrom"),
        ("spec", "template", "spec", "containers", 0, "volumeMounts"),
        ("spec", "template", "spec", "containers", 0, "args"),
        ("spec", "template", "spec", "containers", 0, "image"),
        ("spec", "template", "spec", "containers", 0, "name"),
    ],
)
def test_import_reads_around_malformed_parts(
    path: tuple[Any, ...], tmp_path: Path, capsys: Said
) -> None:
    for value in MALFORMED:
        document = json.loads(json.dumps(DEPLOYMENT))
        at = document
        for key in path[:-1]:
            at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
        at[path[-1]] = value
        found = imported(capsys, written(tmp_path, json.dumps(document)), *GIVEN)
        assert found.code in (0, 2)
        assert "Traceback" not in found.err
        assert "bug" not in found.err


@pytest.mark.parametrize(
    "text",
    [
        "A=$A$A\n" * 20_000 + "cluster-autoscaler $A",
        "A=xxxxxxxxxx\n"
        + "A=$A$A\n" * 40
        + "cluster-autoscaler --cloud-provider=alicloud "
        + "$A" * 100_000,
        "cluster-autoscaler " + "--v=1 " * 100_000,
        "cluster-autoscaler '" + "x" * 1_000_000,
        "sh -c " + "'sh -c " * 50_000,
        "cluster-autoscaler --nodes=" + "\\ " * 500_000,
        "\n".join(f"cluster-autoscaler --v={at}" for at in range(20_000)),
    ],
)
def test_import_reads_a_hostile_script_in_bounded_time(
    text: str, tmp_path: Path, capsys: Said
) -> None:
    found = imported(capsys, written(tmp_path, text, "run.sh"), *GIVEN)
    assert found.code in (0, 2)
    assert len(found.err + found.out) < 20_000


def test_text_of_the_input_cannot_move_the_cursor(tmp_path: Path, capsys: Said) -> None:
    text = json.dumps(
        workload(container(["./cluster-autoscaler", *ALICLOUD, "stray\x1b[2J\nline"]))
    )
    assert main(["import", written(tmp_path, text), *GIVEN]) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err


def test_no_error_repeats_values_that_may_be_secret(tmp_path: Path, capsys: Said) -> None:
    secret = "not-a-real-key"
    env = [
        {"name": "DATABASE", "value": f"db://user:{secret}$x@host"},
        {"name": "API_KEY", "value": secret},
        {"name": "REGION_ID", "value": "<region>"},
    ]
    flags = ["./cluster-autoscaler", *ALICLOUD, "--cluster-name=$(API_KEY)"]
    texts = (
        manifest(workload(container(flags, env=env))) + f"# - --password={secret}\n",
        f"kind: Pod\npassword: {secret}{{{{ .Values.x }}}}\n{{{{ if x }}}}\n",
        f"API_KEY={secret} cluster-autoscaler {' '.join(ALICLOUD)} --cluster-name=$API_KEY",
        (
            f"[Service]\nEnvironment=API_KEY={secret}\nExecStart=/bin/cluster-autoscaler "
            f"--cluster-name=${{API_KEY}}\n"
        ),
    )
    for text in texts:
        given = ("--env", f"API_KEY={secret}")
        for arguments in (GIVEN[2:], (*GIVEN[2:], *given)):
            refused = imported(capsys, written(tmp_path, text), *arguments)
            assert refused.code == 2, text
            assert secret not in refused.out + refused.err
