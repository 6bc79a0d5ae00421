"""Commands take the Secret in which Cluster API keeps a kubeconfig as a kubeconfig."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.kubeconfig_files import read_kubeconfig
from chalicelib.cli.main import main
from chalicelib.model.errors import BadInput
from tests.functional.captured_clusters import saved_objects, served
from tests.functional.saved_cluster import shop

Said = pytest.CaptureFixture[str]
TYPE = "cluster.x-k8s.io/secret"
KUBECONFIG = "apiVersion: v1\nkind: Config\ncurrent-context: shop\n"


def secret(text: str = KUBECONFIG, *, kind: str = TYPE, key: str = "value") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": "shop-kubeconfig", "namespace": "capi"},
        "data": {key: base64.b64encode(text.encode()).decode()},
    }


def in_list(*secrets: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(secrets)}


def written(folder: Path, document: Any) -> Path:
    path = folder / "secret.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_a_command_connects_by_a_kubeconfig_secret(tmp_path: Path, capsys: Said) -> None:
    with served(tmp_path, saved_objects(shop(tmp_path / "shop"))) as (_, kubeconfig):
        path = written(tmp_path, secret(kubeconfig.read_text()))
        arguments = ["--kubeconfig", str(path), "--management-kubeconfig", str(path)]
        assert main(["capture", str(tmp_path / "capture"), *arguments]) == 0
    assert (tmp_path / "capture" / "nodes.json.gz").exists()


@pytest.mark.parametrize(
    "document",
    [
        secret(),
        in_list(secret()),
        in_list(secret(kind="Opaque"), secret()),
        {**in_list({**secret(), "kind": ""}), "kind": "SecretList"},
        json.dumps(secret()),
        {**secret(), "data": None, "stringData": {"value": KUBECONFIG}},
        "---\n" + yaml.safe_dump(secret()) + "---\nkind: Cluster\n",
    ],
)
def test_a_secret_is_opened_in_any_form_that_kubectl_prints(document: Any, tmp_path: Path) -> None:
    assert read_kubeconfig(written(tmp_path, document)) == KUBECONFIG


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (secret(kind="Opaque"), "is the Secret capi/shop-kubeconfig of type Opaque"),
        ({**secret(), "type": None}, "of type Opaque"),
        (secret(key="tls.crt"), "has no kubeconfig in its key value"),
        ({**secret(), "data": {"value": "%%%"}}, "is not text in base64"),
        ({**secret(), "data": {"value": "/w=="}}, "is not text in base64"),
        ({**secret(), "data": [1]}, "has no kubeconfig in its key value"),
        ({**secret(), "metadata": []}, None),
        (in_list(secret(), secret()), "has 2 kubeconfig Secrets"),
    ],
)
def test_a_secret_without_one_kubeconfig_is_refused_with_the_command(
    document: Any, says: str | None, tmp_path: Path, capsys: Said
) -> None:
    path = written(tmp_path, document)
    if says is None:
        assert read_kubeconfig(path) == KUBECONFIG
        return
    with pytest.raises(BadInput, match=says):
        read_kubeconfig(path)
    assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(path)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert says in error


def test_the_type_of_a_hostile_secret_is_shown_shortened(tmp_path: Path) -> None:
    path = written(tmp_path, secret(kind="x" * 100_000))
    with pytest.raises(BadInput) as refusal:
        read_kubeconfig(path)
    assert len(str(refusal.value)) < 1_000


def test_files_of_several_may_be_secrets(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("contexts:\n- {name: a, context: {cluster: c}}\n")
    merged = yaml.safe_load(read_kubeconfig(Path(f"{other}:{written(tmp_path, secret())}")))
    assert merged["current-context"] == "shop"
