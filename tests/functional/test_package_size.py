"""The zip's size, and that the parts omitted from it are not needed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import botocore
import msgspec
import pytest
from botocore.exceptions import EndpointVariantError
from botocore.regions import EndpointResolver

from chalicelib.cli.option_overrides import with_options
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.load import load
from infra.aws.botocore_data import SERVICES, without_texts
from infra.aws.unneeded_files import is_left_out, twins
from tests.functional.artifact import artifact
from tests.functional.forbidden_modules import NEVER
from tests.property.clusters import POLICY, make
from tests.property.objects import NOW
from tests.property.snapshot_reader import read

MEGABYTE = 10**6
LIBRARY = b"\x7fELF...\0libc.so.6\0libx.so.1\0..."
_PROCESS = Path(__file__).with_name("plan_process.py")


def test_zip_has_at_most_27_megabytes() -> None:
    assert artifact().zip.stat().st_size <= 27 * MEGABYTE


# -- the planner without the omitted parts


def _planned_by_the_artifact(arguments: tuple[Any, ...], scratch: Path) -> dict[str, Any]:
    given = scratch / "arguments"
    given.write_bytes(pickle.dumps(arguments))
    command = [sys.executable, "-I", "-S", str(_PROCESS), str(artifact().task), str(given)]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


# Random clusters by seed: least-cost calls its solver 3, 26 and 6 times; each of the others
# has a different expander.
@pytest.mark.parametrize(
    ("seed", "solved"), [(27, True), (120, True), (133, True), (1, False), (3, False), (9, False)]
)
def test_artifact_makes_the_same_plan_as_the_source_tree(
    seed: int, solved: bool, tmp_path: Path
) -> None:
    cluster = make(seed)
    policy = with_options(load(POLICY, place="policy.yaml")[0], cluster.settings)
    arguments = (read(cluster.lists, cluster.manifest, NOW), policy, cluster.memory(), NOW, 0)
    made = _planned_by_the_artifact(arguments, tmp_path)
    assert made["plan"].encode() == msgspec.json.encode(plan_cluster(*arguments)[0])
    assert ("highspy" in made["modules"]) is solved
    assert "numpy.random" not in made["modules"]
    assert [
        name for name in made["modules"] if name.partition(".")[0] in NEVER or name in NEVER
    ] == []


def test_artifact_renders_the_status_page() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from chalicelib.page.render import Links; from chalicelib.page.routes import failed;"
        "sys.stdout.write(failed(Links('/api/ui'), 0.0, 401, '<no session>').body.decode())"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(artifact().task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "&lt;no session&gt;" in done.stdout


# -- omitted parts


def test_omitted_parts_are_not_in_the_zip() -> None:
    names = zipfile.ZipFile(artifact().zip).namelist()
    assert [name for name in names if is_left_out(name) and "__pycache__/" not in name] == []
    gone = ("boto3/", "s3transfer/", "charset_normalizer/", "numpy/testing/")
    assert [name for name in names if name.startswith(gone)] == []


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("numpy/_core/_simd.cpython-311-x86_64-linux-gnu.so", True),
        ("numpy/_core/_simd.cpython-313-aarch64-linux-gnu.so", True),
        ("numpy/_core/_multiarray_tests.cpython-312-aarch64-linux-gnu.so", True),
        ("numpy/_core/_multiarray_umath.cpython-312-aarch64-linux-gnu.so", False),
        ("numpy/random/_generator.cpython-312-aarch64-linux-gnu.so", True),
        ("numpy/linalg/tests/test_linalg.py", True),
        ("numpy/ma/core.py", False),
        ("numpy-2.2.6.dist-info/LICENSE.txt", False),
        ("msgspec-0.22.0.dist-info/licenses/LICENSE", False),
        ("boto-1.dist-info/NOTICE", False),
        ("msgspec-0.22.0.dist-info/METADATA", False),
        ("msgspec-0.22.0.dist-info/RECORD", True),
        ("msgspec-0.22.0.dist-info/WHEEL", True),
        ("aws_lambda_powertools/utilities/__init__.py", False),
        ("aws_lambda_powertools/utilities/jmespath_utils/__init__.py", False),
        ("aws_lambda_powertools/utilities/parser/models/alb.py", True),
        ("chalicelib/plan/planner.py", False),
        ("chalicelib/functions/tick.py", False),
        ("certifi/cacert.pem", False),
        ("tzdata/zoneinfo/Europe/Zurich", False),
        ("chalicelib/", True),
    ],
)
def test_omitted_parts_do_not_depend_on_processor_or_version(name: str, out: bool) -> None:
    assert is_left_out(name) is out


def test_every_package_keeps_its_licence() -> None:
    names = zipfile.ZipFile(artifact().zip).namelist()
    packages = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    licensed = {
        name.partition("/")[0]
        for name in names
        if re.search(r"\.dist-info/(.*/)?(LICEN[CS]E|COPYING|NOTICE)", name)
    }
    assert len(packages) > 15
    assert packages == licensed
    assert packages == {
        name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA")
    }


# -- duplicate libraries


def test_only_the_linked_name_of_a_duplicate_library_stays_in_the_zip(tmp_path: Path) -> None:
    for name in ("libx.so.1", "libx.so.1.15.1", "libx.so"):
        (tmp_path / name).write_bytes(LIBRARY)
    assert [path.name for path in twins(tmp_path)] == ["libx.so", "libx.so.1.15.1"]


@pytest.mark.parametrize(
    "others",
    [
        {"other/libx.so.1.15.1": LIBRARY},  # another folder, so another search path
        {"libx.so.1.15.1": LIBRARY + b"."},  # different bytes
        # equal, but nothing shows which of them is linked
        {"liby.so": b"\x7fELF", "libz.so": b"\x7fELF"},
    ],
    ids=["folder", "bytes", "nameless"],
)
def test_library_without_a_duplicate_stays_in_the_zip(
    others: dict[str, bytes], tmp_path: Path
) -> None:
    for name, content in {"libx.so.1": LIBRARY, **others}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert twins(tmp_path) == []


def test_solver_is_in_the_zip_once() -> None:
    [library] = [name for name in zipfile.ZipFile(artifact().zip).namelist() if "/libhighs" in name]
    content = (artifact().task / library).read_bytes()
    assert b"\0" + Path(library).name.encode() + b"\0" in content


# -- botocore's data


def _endpoints(folder: Path) -> EndpointResolver:
    return EndpointResolver(json.loads((folder / "endpoints.json").read_text()))


def _endpoint(table: EndpointResolver, service: str, region: str, asked: dict[str, Any]) -> object:
    try:
        return table.construct_endpoint(service, region, **asked)
    except EndpointVariantError as error:
        return str(error)


@pytest.mark.parametrize("variant", ["", "use_fips_endpoint", "use_dualstack_endpoint"])
@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_region_has_botocores_endpoints(service: str, variant: str) -> None:
    whole = _endpoints(Path(botocore.__file__).parent / "data")
    cut = _endpoints(artifact().task / "botocore" / "data")
    partitions = whole.get_available_partitions()
    assert {"aws", "aws-cn", "aws-us-gov"} <= set(partitions) == set(cut.get_available_partitions())
    for partition in partitions:
        regions = whole.get_available_endpoints(service, partition, allow_non_regional=True)
        assert cut.get_available_endpoints(service, partition, allow_non_regional=True) == regions
        for region in (*regions, "eu-west-9", "cn-west-9"):  # two regions that do not exist yet
            asked: dict[str, Any] = {
                "partition_name": partition,
                **({variant: True} if variant else {}),
            }
            assert _endpoint(cut, service, region, asked) == _endpoint(
                whole, service, region, asked
            )


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_service_description_in_the_zip_omits_only_documentation(service: str) -> None:
    [kept] = (artifact().task / "botocore" / "data" / service).glob("*/service-2.json")
    newest = Path(botocore.__file__).parent / "data" / service / kept.parent.name
    assert newest == max(newest.parent.iterdir())
    whole = json.loads(gzip.decompress((newest / "service-2.json.gz").read_bytes()))
    cut = json.loads(kept.read_text())
    assert list(cut["operations"]) == list(whole["operations"])
    for name, shape in whole["shapes"].items():
        assert list(cut["shapes"][name].get("members", ())) == list(shape.get("members", ()))
        assert {key: cut["shapes"][name].get(key) for key in ("type", "required", "enum")} == {
            key: shape.get(key) for key in ("type", "required", "enum")
        }
    assert "<p>" not in kept.read_text()


def test_member_named_documentation_is_kept() -> None:
    described = {
        "documentation": "<p>",
        "operations": {"documentation": {"name": "documentation", "documentation": "<p>"}},
        "shapes": {
            "documentation": {
                "type": "structure",
                "members": {"documentation": {"shape": "documentation", "documentation": "<p>"}},
            }
        },
    }
    assert without_texts(described) == {
        "operations": {"documentation": {"name": "documentation"}},
        "shapes": {
            "documentation": {
                "type": "structure",
                "members": {"documentation": {"shape": "documentation"}},
            }
        },
    }
