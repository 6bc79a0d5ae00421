"""The command line as users see it: every failure is one line and an exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import chalicelib
from chalicelib.cli.main import COMMANDS, main
from tests.processes import PATIENCE, started
from tests.unit.policy.policy_documents import ARCHITECTURE, GOOD

ROOT = Path(__file__).resolve().parents[2]
Said = pytest.CaptureFixture[str]


def outscaler(
    *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A real process with a minimal environment."""
    return subprocess.run(
        [sys.executable, "-m", "chalicelib", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        timeout=600,
    )


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return str(path)


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


# -- the command line itself -----------------------------------------------------------------------


def test_help_names_every_command(capsys: Said) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {command.name} " in shown for command in COMMANDS)


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_has_help_and_the_output_option(name: str, capsys: Said) -> None:
    assert main([name, "--help"]) == 0
    assert "jsonpath=TEMPLATE (default: table)" in " ".join(capsys.readouterr().out.split())


def test_version_option_prints_the_version(capsys: Said) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"outscaler {chalicelib.__version__}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "outscaler: no command is given; write one of get, explain,"),
        ("valdate x", "outscaler: 'valdate' is not a command; did you mean validate?"),
        ("wibble", "outscaler: 'wibble' is not a command; write one of get,"),
        ("-x", "outscaler: '-x' is not a command"),
        (
            "validate",
            (
                "outscaler validate: the following arguments are required: FILE; see outscaler "
                "validate --help"
            ),
        ),
        (
            "validate -o xml a",
            "outscaler validate: argument -o/--output: 'xml' is not one of table, json, yaml,",
        ),
        ("validate --strct a", "outscaler validate: unrecognized arguments: --strct"),
        # no abbreviations of options
        ("validate --stric a", "outscaler validate: unrecognized arguments: --stric"),
        ("get jobs a", "outscaler get: argument THING: 'jobs' is not one of clusters, groups,"),
        (
            "plan",
            (
                "DIR: no cluster is named; name a folder of saved files, --kubeconfig FILE or "
                "--context NAME"
            ),
        ),
        ("explain node", "NAME: is missing: which node?; write its name after the kind"),
        ("explain node n a --cluster b", "--cluster: is given beside DIR; name one cluster"),
        (
            "history a --limit 0",
            "outscaler history: argument --limit: '0' is not a number from 1 to 1000",
        ),
        (
            "validate /nonexistent/policy.yaml",
            "/nonexistent/policy.yaml: No such file or directory",
        ),
        ("apply /nonexistent/policy.yaml", "/nonexistent/policy.yaml: No such file or directory"),
        ("validate /", "/: Is a directory"),
        ("apply /", "/: Is a directory"),
    ],
)
def test_invalid_command_line_is_a_one_line_error_with_exit_code_2(
    line: str, says: str, capsys: Said
) -> None:
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.err.startswith(says)
    assert said.err.count("\n") == 1


# -- validate --------------------------------------------------------------------------------------


def test_validate_accepts_a_correct_document(good: str, capsys: Said) -> None:
    assert main(["validate", good]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert [line.split() for line in said.out.splitlines()] == [
        ["FILE", "CLUSTER", "RESULT"],
        [good, "prod-geneva", "valid"],
    ]


def test_validate_reports_all_errors_of_all_files(tmp_path: Path, good: str, capsys: Said) -> None:
    bad = write(tmp_path, "bad.yaml", GOOD.replace("active", "on").replace("Cluster", "Klub"))
    worse = write(tmp_path, "worse.yaml", "a: [")
    assert main(["validate", bad, good, worse]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[:2] == [
        f"{bad}:2: kind: 'Klub' is unknown; write Cluster",
        f"{bad}:5: spec.mode: 'on' is unknown; write off, shadow or active",
    ]
    assert said.err.splitlines()[2].startswith(f"{worse}:1: not YAML")
    assert [line.split()[-2:] for line in said.out.splitlines()[1:]] == [
        ["2", "mistakes"],
        ["prod-geneva", "valid"],
        ["1", "mistake"],
    ]


def test_validate_warnings_change_the_exit_code_only_with_strict(
    tmp_path: Path, capsys: Said
) -> None:
    file = write(tmp_path, "policy.yaml", ARCHITECTURE + "  scaleUp: {rules: false}\n")
    assert main(["validate", file]) == 0
    assert capsys.readouterr().err.startswith(
        f"warning: {file}:13: spec.rules: none of them is in force"
    )
    assert main(["validate", "--strict", file]) == 1


def test_validate_accepts_the_documented_example_verbatim(tmp_path: Path, capsys: Said) -> None:
    assert main(["validate", write(tmp_path, "policy.yaml", ARCHITECTURE)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].endswith("valid")
    assert said.err == ""


def test_validate_json_and_yaml_output_are_equal(tmp_path: Path, capsys: Said) -> None:
    file = write(tmp_path, "policy.yaml", GOOD.replace("active", "on"))
    assert main(["validate", "-o", "json", file]) == 2
    as_json = json.loads(capsys.readouterr().out)
    assert main(["validate", "-o", "yaml", file]) == 2
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json == [
        {
            "file": file,
            "name": "",
            "valid": False,
            "warnings": [],
            "problems": [
                {
                    "place": f"{file}:5: spec.mode",
                    "problem": "'on' is unknown",
                    "remedy": "write off, shadow or active",
                }
            ],
        }
    ]


def test_validate_rejects_one_cluster_in_two_files(tmp_path: Path, good: str, capsys: Said) -> None:
    twin = write(tmp_path, "twin.yaml", GOOD)
    assert main(["validate", good, twin]) == 2
    reported = capsys.readouterr().err
    assert (
        reported
        == f"{twin}: metadata.name: prod-geneva is already in {good}; one document per cluster\n"
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"metadata:\n  name: \xff\n", ":2: is not UTF-8 text; save the file as UTF-8"),
        (b"a" * 300_000, ": is too large for a policy; keep it under 262144 bytes"),
        (b"", ": the document is empty; start with apiVersion"),
        (GOOD.encode("utf-16"), " is not UTF-8 text"),
    ],
)
def test_validate_rejects_a_file_that_is_not_text(
    data: bytes, says: str, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "odd.yaml").write_bytes(data)
    assert main(["validate", str(tmp_path / "odd.yaml")]) == 2
    assert says in capsys.readouterr().err


def test_validate_accepts_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "bom.yaml").write_bytes(GOOD.encode("utf-8-sig"))
    assert main(["validate", str(tmp_path / "bom.yaml")]) == 0


# -- as a process ----------------------------------------------------------------------------------


def test_validate_reads_a_document_from_standard_input() -> None:
    done = outscaler("validate", "-", stdin=GOOD.replace("active", "on"))
    assert done.returncode == 2
    assert done.stderr == "stdin:5: spec.mode: 'on' is unknown; write off, shadow or active\n"


def test_validate_imports_no_heavy_module() -> None:
    code = (
        "import sys; from chalicelib.cli.main import main; code = main(['validate', '-']); "
        "heavy = {'numpy', 'boto3', 'botocore', 'pynamodb', 'requests', 'urllib3', 'rich'}; "
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        input=GOOD,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_closed_output_pipe_is_not_an_error(good: str) -> None:
    files = [good] * 1000  # more output than a pipe holds: it is not written before the end
    command = [sys.executable, "-m", "chalicelib", "validate", "-o", "json", *files]
    with started(command, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 141
    assert said == ""


def test_missing_table_setting_is_named() -> None:
    done = outscaler("get")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("--table: is not given, and OUTSCALER_TABLE is not set")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "AWS region: You must specify a region; set AWS_DEFAULT_REGION"),
        (
            {"AWS_DEFAULT_REGION": "eu-central-2", "AWS_EC2_METADATA_DISABLED": "true"},
            (
                "AWS credentials: Unable to locate credentials; set AWS_PROFILE, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ),
        ),
        (
            {"AWS_PROFILE": "nobodys"},
            "AWS_PROFILE: The config profile (nobodys) could not be found; name a profile",
        ),
        (
            {
                "AWS_DEFAULT_REGION": "eu-central-2",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            },
            (
                'AWS endpoint: Could not connect to the endpoint URL: "http://127.0.0.1:9/" '
                "(it refuses connections on this port); check AWS_DEFAULT_REGION"
            ),
        ),
    ],
    ids=["no-region", "no-credentials", "no-profile", "unreachable"],
)
def test_aws_error_is_one_line_with_its_cause_and_remedy(
    environment: dict[str, str], says: str
) -> None:
    done = outscaler("get", "--table", "t", **environment)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(says)


def test_internal_error_is_one_line_unless_a_traceback_is_requested() -> None:
    # Bytes instead of text: no command line can contain them, so only a programming error can.
    code = "import sys; from chalicelib.cli import main; sys.exit(main.main(['validate', 5]))"
    for environment, lines in (({}, 1), ({"OUTSCALER_TRACEBACK": "1"}, 3)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={"PATH": os.environ["PATH"], **environment},
        )
        assert done.returncode == 70
        assert len(done.stderr.splitlines()) >= lines
        assert ("Traceback" in done.stderr) is bool(environment)
        assert environment or "internal error: " in done.stderr
        assert environment or "please report it" in done.stderr


class Impatient(io.BytesIO):
    """Standard input of a user who presses Ctrl-C instead of typing."""

    def read(self, size: int | None = -1) -> bytes:
        raise KeyboardInterrupt


def test_ctrl_c_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Impatient()))
    assert main(["validate", "-"]) == 130
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_name_the_terminal_cannot_show_is_not_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "genève.yaml", GOOD)
    done = outscaler("validate", file, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "gen\\xe8ve.yaml" in done.stdout
