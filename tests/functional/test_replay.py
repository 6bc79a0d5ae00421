"""Recorded decisions: written by passes, replayed byte for byte, and
compared with another policy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
import yaml
from moto import mock_aws

from chalicelib import __version__
from chalicelib.aws.object_bucket import BucketFailure, ObjectBucket
from chalicelib.cli.main import main
from chalicelib.cli.replayed_plan import replay
from chalicelib.model.errors import BadInput
from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.replay import recorded_decision
from chalicelib.replay.decision_place import reader, writer
from chalicelib.replay.recorded_decision import RecordedDecision, decode, encode, key_from, reduced
from chalicelib.runtime.runtime import Runtime
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from tests.amounts import examples
from tests.property.clusters import make
from tests.property.replay_case import recorded
from tests.scenario.policies import document

WORKERS = "MachineDeployment/default/workers"
PRICES = {"cpu": 0.03, "memory": 0.004, "node": 0.01}


class RecordingWorld(LocalWorld):
    """A world whose passes record their decisions. place: a folder, or the address of a bucket."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(quick=True, grain=60.0)

    def new_runtime(self) -> Runtime:
        return dataclasses.replace(super().new_runtime(), decisions=self.place)

    def day(self, **spec: Any) -> None:
        """Four pods need two nodes, and are gone later."""
        typical: dict[str, Any] = {
            "recordDecisions": True,
            "options": {"scaleDownUnneededTime": "2m"},
            "prices": PRICES,
        }
        self.apply_policy(document(**typical | spec))
        self.seed(
            objects.machine_deployment("workers", 1, 1, 8),
            objects.deployment("web", replicas=8, cpu="1"),
        )
        self.step(600.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("decisions")
    with RecordingWorld(str(place)) as world:
        world.day()
        assert world.size("workers") == 3
    return place


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.decision"))


def test_only_decisions_with_changes_are_recorded(folder: Path) -> None:
    found = files(folder)
    assert 1 <= len(found) <= 3  # of ten passes
    for file in found:
        _, decision = decode(file.read_bytes(), "file")
        assert decision.plan.scale_ups or decision.plan.removals
        assert key_from(str(file)) == recorded_decision.key_of(decision)


@pytest.mark.parametrize(
    "spec", [{"recordDecisions": False}, {"mode": "off"}], ids=["not asked for", "mode off"]
)
def test_nothing_is_recorded_unless_the_policy_asks_for_it(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    with RecordingWorld(str(tmp_path)) as world:
        world.day(**spec)
    assert files(tmp_path) == []


def test_mode_shadow_records_what_would_have_been_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordingWorld(str(tmp_path)) as world:
        world.day(mode="shadow")
    capsys.readouterr()
    assert main(["replay", str(files(tmp_path)[0]), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["scaleUps"][0]["group"] == WORKERS


def test_replay_gives_the_recorded_plan_byte_for_byte(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings = files(folder)
    assert recordings
    for file in recordings:
        assert main(["replay", str(file), "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["same"], found["differs"], found["cluster"]) == (True, [], "shop")


def test_decision_is_found_by_the_id_of_its_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = key_from(str(files(folder)[0]))
    assert key is not None
    assert main(["replay", key.plan, "--from", str(folder)]) == 0
    assert "The same plan as recorded, byte for byte" in capsys.readouterr().out
    assert main(["replay", "p-nothing", "--from", str(folder)]) == 2
    assert "is neither a file nor a decision in" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(24))
def test_every_plan_of_random_clusters_replays_byte_for_byte(seed: int) -> None:
    decision = reduced(recorded(make(seed)))
    header, again = decode(encode(decision), "file")
    assert again == decision
    assert replay(header, again).same


def test_plan_that_differs_names_its_parts_and_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = recorded(make(3))
    other = msgspec.structs.replace(
        decision, plan=msgspec.structs.replace(decision.plan, unneeded=("another",))
    )
    old = encode(other).replace(f'"release":"{__version__}"'.encode(), b'"release":"0.0.9"')
    file = tmp_path / "old.decision"
    file.write_bytes(old)
    assert main(["replay", str(file), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["differs"], found["release"]) == (False, ["unneeded"], "0.0.9")
    assert "was made by release 0.0.9" in found["why"]


def _with_form(data: bytes) -> bytes:
    line, _, packed = data.partition(b"\n")
    other = {
        "form": "0" * 20,
        "release": "9.9.9",
        "digest": hashlib.sha256(packed[:-9]).hexdigest(),
    }
    return json.dumps(json.loads(line) | other).encode() + b"\n" + packed[:-9]


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "is not a recorded decision"),
    "other kind": (lambda data: b'{"kind":"x"}\n', "is not a recorded decision"),
    "rubbish": (lambda data: b"\x00\xff" * 5000, "is not a recorded decision"),
    "endless line": (lambda data: b"x" * 10**6, "is not a recorded decision"),
    "cut off": (lambda data: data[:-5], "is damaged: its digest is another one"),
    "one bit": (
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        "is damaged: its digest is another one",
    ),
    "types of another release": (_with_form, "was made by release 9.9.9, whose data this release"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_file_that_is_no_decision_is_refused_in_one_line(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = HOSTILE[name]
    file = tmp_path / "x.decision"
    file.write_bytes(change(files(folder)[0].read_bytes()))
    assert main(["replay", str(file)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_decompressed_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(recorded(make(3)))
    monkeypatch.setattr(recorded_decision, "LARGEST", 1000)
    with pytest.raises(BadInput, match="is damaged"):
        decode(data, "file")
    with pytest.raises(recorded_decision.TooLarge):
        encode(recorded(make(3)))


def builtin(value: Any) -> Any:
    """The value with every field, as a file would have it."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: builtin(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
        }
    if isinstance(value, dict):
        return {key: builtin(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [builtin(part) for part in value]
    return msgspec.to_builtins(value)


def numbers_in(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], int | float]]:
    """Every number, with the keys and positions that lead to it; of a list the first three
    parts."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 3)):
            yield from numbers_in(value[key], (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def file_with(decision: RecordedDecision, path: tuple[Any, ...], number: float) -> bytes:
    """A file with a valid digest whose number at that path is another one."""
    whole = builtin(decision)
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = number
    packed = zlib.compress(msgspec.msgpack.encode(whole), 1)
    header = json.loads(encode(decision).partition(b"\n")[0]) | {
        "digest": hashlib.sha256(packed).hexdigest()
    }
    return json.dumps(header).encode() + b"\n" + packed


EXTREMES = (2**63 - 1, -(2**63), 2**64 - 1, -1, 10**6, math.nan, math.inf, -math.inf, 1e308, 1e19)


@pytest.mark.more
@pytest.mark.parametrize("seed", [27, 121])
def test_extreme_number_is_refused_in_one_line_or_replayed(seed: int) -> None:
    decision = recorded(make(seed))
    paths = {
        tuple("*" if isinstance(key, int) else key for key in path): path
        for path, _ in numbers_in(builtin(decision))
    }
    dice = random.Random(seed)
    ends = {"refused": 0, "replayed": 0}
    count = examples(15, 40)
    for path in dice.sample(sorted(paths.values(), key=str), count):
        number = dice.choice(EXTREMES)
        try:
            header, changed = decode(file_with(decision, path, number), "file")
        except BadInput as bad:
            ends["refused"] += str(bad).startswith("file: is damaged (")
        else:
            assert isinstance(replay(header, changed).same, bool)
            ends["replayed"] += 1
    assert (sum(ends.values()), min(ends.values()) >= 3) == (count, True)


@pytest.mark.parametrize(
    ("path", "number", "says"),
    [
        (("snapshot", "pods", 0, "cls"), 2**63 - 1, "pods[0].cls is 9223372036854775807 of "),
        (("snapshot", "pods", 0, "cls"), -1, "pods[0].cls is -1 of "),
        (("snapshot", "daemonsets", 0, "cls"), 10**6, "daemonsets[0].cls is 1000000 of "),
        (
            ("snapshot", "nodes", 0, "allocatable", "cpu"),
            2**63,
            "decision.snapshot.nodes[0].allocatable.cpu is out of",
        ),
        (
            ("snapshot", "nodes", 0, "allocatable", "cpu"),
            -(2**63),
            "decision.snapshot.nodes[0].allocatable.cpu is out",
        ),
        (
            ("snapshot", "nodes", 0, "created"),
            math.nan,
            "decision.snapshot.nodes[0].created is not finite",
        ),
        (("memory", "first_seen"), math.inf, "decision.memory.first_seen is not finite"),
        (
            ("policy", "maxDisruption", "share"),
            math.nan,
            "decision.policy.max_disruption.share is not finite",
        ),
        (("now",), 1e19, "now is 1e+19"),
        (("now",), -1.0, "now is -1"),
    ],
)
def test_number_that_no_pass_records_is_named(
    path: tuple[Any, ...], number: float, says: str
) -> None:
    with pytest.raises(BadInput) as refused:
        decode(file_with(recorded(make(3)), path, number), "file")
    assert f"is damaged ({says}" in str(refused.value)


def test_span_sums_up_days_and_one_bad_file_stops_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = folder / "shop" / "2026-01-01" / "000000-bad.decision"
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        document(options={"scaleDownEnabled": False}, prices=PRICES, nodeGroups=[_bounded(2)])
    )
    words = [
        "replay",
        "--cluster",
        "shop",
        "--from",
        str(folder),
        "--with-policy",
        str(policy),
        "-o",
        "json",
    ]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    [day] = found["days"]
    assert day["decisions"] == len(files(folder))
    assert day["different"] == found["unreadable"] == 0
    assert (day["recorded"]["nodes"], day["withPolicy"]["nodes"]) == (2, 1)
    assert (day["recorded"]["left"], day["withPolicy"]["left"] > 0) == (0, True)
    assert day["recorded"]["cost"] > day["withPolicy"]["cost"] > 0
    bad.parent.mkdir()
    bad.write_bytes(b"rubbish")
    try:
        assert main(words) == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["unreadable"], len(found["days"])) == (1, 1)
        assert main(words[:-2]) == 1
        assert "recorded policy / given policy" in capsys.readouterr().out
    finally:
        bad.unlink()


@pytest.mark.parametrize(
    "prices", [{}, {"prices": {"cpu": 1.0, "memory": 0.0}}], ids=["recorded", "given"]
)
def test_both_sides_of_a_comparison_have_the_same_prices(
    prices: dict[str, Any], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(document(options={"scaleDownEnabled": False}, **prices))
    words = ["--from", str(folder), "--with-policy", str(policy), "-o", "json"]
    assert main(["replay", "--cluster", "shop", *words]) == 0
    [day] = json.loads(capsys.readouterr().out)["days"]
    assert day["recorded"]["nodes"] == day["withPolicy"]["nodes"] == 2
    assert day["recorded"]["cost"] == day["withPolicy"]["cost"] > 0
    assert day["recorded"]["unpriced"] == day["withPolicy"]["unpriced"] == 0
    assert main(["replay", str(files(folder)[0]), *words]) == 0
    first, second = json.loads(capsys.readouterr().out)["comparison"]["difference"]["cost"]
    assert first == second > 0


def _bounded(most: int) -> dict[str, Any]:
    return {"provider": "clusterapi", "id": WORKERS, "min": 1, "max": most}


def test_replay_with_another_policy_shows_both_plans(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(document(nodeGroups=[_bounded(1)]))
    assert main(["replay", str(files(folder)[0]), "--with-policy", str(policy), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]["difference"]
    assert found["nodes"][0] > found["nodes"][1] == 0


def test_replay_takes_a_policy_as_plan_does(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "what-if.yaml"
    whatif = yaml.safe_load(document(nodeGroups=[_bounded(1)]))
    whatif["metadata"]["name"] = "another"
    whatif["spec"]["kubernetes"] = {"kubeconfigSecret": "nobody/permits/this"}
    policy.write_text(yaml.safe_dump(whatif))
    for words in ((str(files(folder)[0]),), ("--cluster", "shop", "--from", str(folder))):
        assert main(["replay", *words, "--with-policy", str(policy), "-o", "json"]) == 0
        assert capsys.readouterr().out


def test_schedules_of_the_other_policy_are_those_open_at_the_decision(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    always = {"name": "always", "groups": [WORKERS], "cron": "0 * * * *", "duration": "1h"}
    policy = tmp_path / "policy.yaml"
    changed = []
    for most in (1, 9):
        schedule = {**always, "max": most}
        policy.write_text(document(nodeGroups=[_bounded(9)], schedules=[schedule]))
        words = ["--with-policy", str(policy), "-o", "json"]
        assert main(["replay", str(files(folder)[0]), *words]) == 0
        difference = json.loads(capsys.readouterr().out)["comparison"]["difference"]
        changed.append(difference["nodes"][1])
    assert changed[0] == 0 < changed[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["replay"], "names no decision; give DECISION, or --cluster NAME and --since 7d"),
        (["replay", "p-1"], "--from: is not given, and OUTSCALER_DECISIONS is not set"),
        (
            ["replay", "p-1", "--from", "s3://Bad_Bucket"],
            "is not the address of a bucket; write s3://BUCKET",
        ),
        (["replay", "p-1", "--from", "/nonexistent"], "is not a folder"),
        (
            ["replay", "--cluster", "x", "--since", "soon"],
            "'soon' is not a duration, such as 7d or 36h",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistake_on_the_command_line_is_named(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err


# -- S3


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="decisions")
        yield client


def test_bucket_takes_and_gives_decisions(bucket: Any) -> None:
    place = "s3://decisions/team"
    writer(place).put("shop/2026-11-23/101500-p1.decision", b"data")
    assert list(reader(place).paths("shop/")) == ["shop/2026-11-23/101500-p1.decision"]
    assert list(reader(place).paths("other/")) == []
    assert reader(place).get("shop/2026-11-23/101500-p1.decision") == b"data"
    with pytest.raises(BucketFailure, match="NoSuchKey"):
        reader(place).get("shop/none")
    with pytest.raises(BucketFailure, match="more than 3 bytes"):
        ObjectBucket("decisions", "team/", bucket).get("shop/2026-11-23/101500-p1.decision", 3)


def test_failing_bucket_costs_a_pass_nothing_but_a_log_line(
    bucket: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    del bucket
    with RecordingWorld("s3://missing-bucket") as world:
        world.day()
        assert world.size("workers") == 3
        assert world.pending() == ()
    assert "decision not recorded" in caplog.text + capsys.readouterr().out


def test_folder_that_cannot_be_written_costs_a_pass_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with RecordingWorld(str(blocked)) as world:
        world.day()
        assert world.size("workers") == 3


def test_recorded_decision_names_no_secret_and_no_foreign_annotation(tmp_path: Path) -> None:
    odd = objects.node("odd", cpu="1")
    odd["metadata"]["annotations"] = {"example.org/token": "hush", SCALE_DOWN_DISABLED: "true"}
    with RecordingWorld(str(tmp_path)) as world:
        world.seed(odd)
        world.day()
    recordings = files(tmp_path)
    assert recordings
    for file in recordings:
        _, decision = decode(file.read_bytes(), "file")
        text = msgspec.json.encode(decision).decode()
        assert [word for word in ("hush", "kubeconfig", "outscaler/shop/") if word in text] == []
        assert next(node for node in decision.snapshot.nodes if node.name == "odd").annotations == {
            SCALE_DOWN_DISABLED: "true"
        }
