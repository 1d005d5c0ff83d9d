"""Reading the file of `--config`: YAML and JSON, and what is wrong with either."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.app import configfile
from isthmus.errors import UserError

YAML = """\
apiVersion: operator.config.dynamo.nvidia.com/v1alpha1
kind: OperatorConfiguration
multiCluster:
  mcsImplementation: mcs
  exportedAnnotations: {service.cilium.io/global-sync-endpoint-slices: "true"}
"""
JSON = """{
 "apiVersion": "operator.config.dynamo.nvidia.com/v1alpha1", "kind": "OperatorConfiguration",
 "multiCluster": {"mcsImplementation": "mcs",
  "exportedAnnotations": {"service.cilium.io/global-sync-endpoint-slices": "true"}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_yaml_and_json_must_say_the_same(file: Path) -> None:
    file.write_text(YAML)
    from_yaml = configfile.read(file)
    file.write_text(JSON)
    assert configfile.read(file) == from_yaml
    assert from_yaml.multi_cluster.mcs_implementation == "mcs"


@pytest.mark.covers("GD-50", "PR-2")
def test_every_problem_must_be_told_with_the_files_name(file: Path) -> None:
    file.write_text(YAML.replace(": mcs", ": none") + "relay: {image: 3, colour: red}\n")
    with pytest.raises(UserError) as caught:
        configfile.read(file)
    first, *others = str(caught.value).splitlines()
    assert first == f"--config {file}: 3 problem(s)"
    assert [line.split(":")[0].strip() for line in others] == [
        "multiCluster.mcsImplementation",
        "relay.image",
        "relay.colour",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", "key a is there twice"),
        ("x:\n  a: 1\n  a: 2\n", "key a is there twice"),
        ('{"a": 1, "a": 2}', "key a is there twice"),
        ("[a]: 1\n", "is no text"),
        ("a: &x 1\nb: *x\n", "aliases are not allowed"),
        ("a: 1\n---\na: 1\n", "expected a single document"),
        ("a: [", "expected"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("{" * 5000, "problem|recursion|maximum"),
        ("", "must be a mapping"),
    ],
)
def test_text_that_is_no_plain_document_must_be_refused(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        configfile.read(file)


def test_file_that_cannot_be_read_must_be_named(file: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: No such file"):
        configfile.read(file)
    file.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        configfile.read(file)
    file.write_text("#" * (configfile.MAX_BYTES + 1))
    with pytest.raises(UserError, match="at most"):
        configfile.read(file)


def test_json_must_cost_no_yaml_library(file: Path) -> None:
    file.write_text(json.dumps(json.loads(JSON)))
    script = (
        "import sys, pathlib; from isthmus.app import configfile;"
        f"configfile.read(pathlib.Path({str(file)!r})); sys.exit('yaml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)
