"""`outscaler import` reads command lines and scripts as a shell does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import each_row
from tests.functional.import_runs import ALICLOUD, GIVEN, Said, imported, written


def test_a_systemd_unit_is_refused_with_what_to_give_instead(tmp_path: Path, capsys: Said) -> None:
    text = "[Unit]\nDescription=x\n\n[Service]\nExecStart=/bin/cluster-autoscaler --v=4\n"
    refused = imported(capsys, written(tmp_path, text, "cluster-autoscaler.service"), *GIVEN)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(
        "is a systemd unit, which is not read; give the words of ExecStart with --command\n"
    )


@each_row(
    "text",
    [
        "cluster-autoscaler FLAGS",
        "./bin/cluster-autoscaler FLAGS > log.txt 2>&1 &",
        (
            "#!/bin/bash\nset -euo pipefail\ncd /opt\nFLAGS='--v=2'\nexec /usr/bin/autoscaler "
            "$FLAGS FLAGS && echo done\n"
        ),
        "go run -mod=vendor . FLAGS",
        "env A=1 nohup cluster-autoscaler FLAGS",
        "FLAGS",
    ],
)
def test_import_reads_a_command_line_in_any_form(text: str, tmp_path: Path, capsys: Said) -> None:
    text = text.replace("FLAGS", " ".join(ALICLOUD)).replace(f"{' '.join(ALICLOUD)}='", "FLAGS='")
    text = text.replace(f"${' '.join(ALICLOUD)}", "$FLAGS")
    for arguments in ([written(tmp_path, text, "run.sh")], ["--command", text]):
        found = imported(capsys, *arguments, *GIVEN)
        assert found.code == 0, found.err
        assert found.document["spec"]["providers"]["alicloud"]["nodes"] == [
            "1:10:asg-bp18p2yfxow2dloq0001"
        ]


def test_import_reads_a_command_line_from_standard_input(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    text = f"cluster-autoscaler {' '.join(ALICLOUD)}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert imported(capsys, "-", *GIVEN).code == 0


@each_row(
    "text, says",
    [
        (
            "docker run --rm registry.example/cluster-autoscaler:v1.30.1 --v=1",
            (
                "is run by docker, whose options are not read; give the autoscaler's own words "
                "with --command"
            ),
        ),
        ("cluster-autoscaler -nodes=1:2:a", "write --nodes=1:2:a"),
        ("cluster-autoscaler --nodes", "needs a value and is the last word"),
        ("cluster-autoscaler ---v=1", "is not a flag"),
        ("kubectl logs deploy/cluster-autoscaler", "does not run an autoscaler"),
        ("cluster-autoscaler --v=1; cluster-autoscaler --v=2", "runs the autoscaler 2 times"),
        ("cluster-autoscaler --cluster-name=$(cat name)", "runs a command; write its output"),
        ("cluster-autoscaler --cluster-name=$NAME", "give --env NAME=VALUE"),
    ],
)
def test_import_refuses_a_command_line_that_does_not_start(
    text: str, says: str, capsys: Said
) -> None:
    refused = imported(capsys, "--command", text, *GIVEN)
    assert (refused.code, refused.out) == (2, "")
    assert says in refused.err


def test_words_after_two_dashes_and_without_a_flag_have_no_effect(capsys: Said) -> None:
    text = f"cluster-autoscaler {' '.join(ALICLOUD)} stray -- --max-nodes-total=5"
    found = imported(capsys, "--command", text, *GIVEN)
    assert found.options == {}
    assert [found.rows_of(word)[0][0] for word in ("stray", "--max-nodes-total=5")] == [
        "no effect",
        "no effect",
    ]
