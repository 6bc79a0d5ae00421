"""`outscaler import` reads systemd units, scripts and container runners as these programs do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import each_row
from tests.functional.import_runs import ALICLOUD, GIVEN, Said, imported, written

UNIT = """[Unit]
Description=Cluster Autoscaler

[Service]
Environment="CLUSTER=orchard" GROUP=1:10:asg-bp18p2yfxow2dloq0001
Environment=MORE='--v=4 --max-nodes-total=50'
EnvironmentFile=-/etc/default/cluster-autoscaler
ExecStart=
ExecStart=-/usr/local/bin/cluster-autoscaler \\
  --cloud-provider=alicloud \\
  # a comment between continued lines
  --nodes=${GROUP} "--user-agent=a\\x20b" \\
  --cluster-name=${CLUSTER} $MORE
Restart=always
"""


def test_IMP_37_a_units_flags_continue_over_lines(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, UNIT, "cluster-autoscaler.service")
    found = imported(capsys, file, "--region", "cn-hangzhou", "--credentials-secret", "outscaler/orchard/alicloud")
    assert found.code == 0, found.err
    assert found.document["metadata"]["name"] == "orchard"
    assert found.document["spec"]["providers"]["alicloud"]["nodes"] == ["1:10:asg-bp18p2yfxow2dloq0001"]
    assert found.options == {"maxNodesTotal": 50, "userAgent": "a b"}
    assert found.rows[0]["word"] == "unit file"
    assert [row["line"] for row in found.rows if row["word"].startswith("--nodes=")] == [12]
    assert found.rows_of("EnvironmentFile=/etc/default/cluster-autoscaler")[0][0] == "told"


def test_IMP_37_variables_of_an_environment_file_among_the_inputs_count(tmp_path: Path, capsys: Said) -> None:
    unit = written(tmp_path, UNIT, "cluster-autoscaler.service")
    variables = written(
        tmp_path, '# settings\nREGION_ID="cn-beijing"\nACCESS_KEY_ID=not-a-real-key\n', "cluster-autoscaler"
    )
    found = imported(capsys, unit, variables)
    assert found.document["spec"]["providers"]["alicloud"]["region"] == "cn-beijing"
    assert "not-a-real-key" not in found.out + found.err


def test_IMP_37_specifiers_of_a_unit_are_refused(tmp_path: Path, capsys: Said) -> None:
    text = UNIT.replace("${CLUSTER}", "%i").replace("a\\x20b", "%n")
    refused = imported(capsys, written(tmp_path, text, "a.service"), *GIVEN)
    assert refused.code == 2
    assert "a.service:13: '--cluster-name=%i' has the specifier '%i'" in refused.err
    assert "'%n'" in refused.err


@each_row(
    "text",
    [
        "cluster-autoscaler FLAGS",
        "./bin/cluster-autoscaler FLAGS > log.txt 2>&1 &",
        "#!/bin/bash\nset -euo pipefail\ncd /opt\nFLAGS='--v=2'\nexec /usr/bin/autoscaler $FLAGS FLAGS && echo done\n",
        "docker run --rm -d --name cluster-autoscaler -v /etc:/etc registry.example/cluster-autoscaler:v1.35.0 FLAGS",
        "docker run -it registry.example/other ./cluster-autoscaler FLAGS",
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
        assert found.document["spec"]["providers"]["alicloud"]["nodes"] == ["1:10:asg-bp18p2yfxow2dloq0001"]


def test_import_reads_variables_of_a_container_runner_and_its_release(capsys: Said) -> None:
    text = f"docker run -e REGION_ID=cn-beijing registry.example/cluster-autoscaler:v1.30.1 {' '.join(ALICLOUD)}"
    found = imported(capsys, "--command", text, "--name", "shop")
    assert found.document["spec"]["providers"]["alicloud"]["region"] == "cn-beijing"
    assert found.options["expander"] == "random"


def test_import_reads_a_command_line_from_standard_input(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    text = f"cluster-autoscaler {' '.join(ALICLOUD)}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert imported(capsys, "-", *GIVEN).code == 0


@each_row(
    "text, says",
    [
        ("cluster-autoscaler -nodes=1:2:a", "write --nodes=1:2:a"),
        ("cluster-autoscaler --nodes", "needs a value and is the last word"),
        ("cluster-autoscaler ---v=1", "is not a flag"),
        ("kubectl logs deploy/cluster-autoscaler", "does not run an autoscaler"),
        ("cluster-autoscaler --v=1; cluster-autoscaler --v=2", "runs the autoscaler 2 times"),
        ("cluster-autoscaler --cluster-name=$(cat name)", "runs a command; write its output"),
        ("cluster-autoscaler --cluster-name=$NAME", "give --env NAME=VALUE"),
    ],
)
def test_import_refuses_a_command_line_that_does_not_start(text: str, says: str, capsys: Said) -> None:
    refused = imported(capsys, "--command", text, *GIVEN)
    assert (refused.code, refused.out) == (2, "")
    assert says in refused.err


def test_words_after_two_dashes_and_without_a_flag_have_no_effect(capsys: Said) -> None:
    text = f"cluster-autoscaler {' '.join(ALICLOUD)} stray -- --max-nodes-total=5"
    found = imported(capsys, "--command", text, *GIVEN)
    assert found.options == {}
    assert [found.rows_of(word)[0][0] for word in ("stray", "--max-nodes-total=5")] == ["no effect", "no effect"]
