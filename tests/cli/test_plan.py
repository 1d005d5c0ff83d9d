"""`isthmus plan`: the objects of a manifest, the steps of an update, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from isthmus.cli.plan import command
from isthmus.errors import UserError
from tests.support.world import expected, serving, team

EXAMPLES = Path(__file__).parents[2] / "examples" / "modelserving"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def planned(*arguments: str) -> Any:
    return json.loads(run(*arguments, "-o", "json").stdout)


def write(path: Path, *documents: Any) -> str:
    path.write_text(yaml.safe_dump_all(msgspec.to_builtins(documents)))
    return str(path)


def refusal(*arguments: str) -> list[str]:
    with pytest.raises(UserError) as raised:
        run(*arguments)
    return str(raised.value).splitlines()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_plan_must_list_the_objects_of_every_example(path: Path) -> None:
    found = planned("-f", str(path))["items"]
    manifest = next(each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "ModelServing")
    names = {
        kind: {each["metadata"]["name"] for each in found if each["kind"] == kind}
        for kind in ("Pod", "Service")
    }
    assert (names["Pod"], names["Service"]) == expected(manifest)


def test_update_must_list_its_steps_and_keep_to_its_budget(tmp_path: Path) -> None:
    rolling = EXAMPLES / "rolling-update.yaml"
    new = tmp_path / "new.yaml"
    new.write_text(rolling.read_text().replace("image: python", "image: registry.example/python"))
    found = planned("-f", str(new), "--from", str(rolling))
    assert found == planned("-f", str(rolling), "--update", str(new))
    deleted = [
        [each["target"] for each in step["actions"] if each["action"] == "delete" and "pod" in each["target"]]
        for step in found["steps"]
    ]
    assert [each for each in deleted if each] == [
        ["pod rolling-3-server-0-0", "pod rolling-2-server-0-0"],
        ["pod rolling-1-server-0-0", "pod rolling-0-server-0-0"],
    ]
    assert min(step["availableReplicas"] for step in found["steps"]) == 2
    images = {each["spec"]["containers"][0]["image"] for each in found["objects"] if each["kind"] == "Pod"}
    assert all(image.startswith("registry.example/") for image in images)


def test_plan_must_say_the_same_in_words_and_as_yaml(tmp_path: Path) -> None:
    old = write(tmp_path / "old.yaml", serving("a", 2, team("p", 1, 1)))
    new = write(tmp_path / "new.yaml", serving("a", 2, team("p", 2, 1)))
    assert run("-f", old, "--no-gang").stdout.splitlines()[0] == (
        "ModelServing default/a: 2 groups, 4 Pods, 2 Services, 0 PodGroups, 1 ControllerRevision"
    )
    text = run("-f", new, "--from", old).stdout
    assert "create a-0/p-1" in text
    assert "delete" not in text
    assert yaml.safe_load(run("-f", new, "--from", old, "-o", "yaml").stdout) == planned(
        "-f", new, "--from", old
    )
    assert "changes no object" in run("-f", old, "--update", old).stdout


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"replicas": "two"}, "spec.replicas: must be an integer, not a string"),
        ({"replica": 2}, "spec.replica: there is no such field"),
        ({"recoveryPolicy": "Never"}, "spec.recoveryPolicy: must be one of"),
        ({"replicas": -1}, "spec.replicas: must be 0 at least, not -1"),
        ({"template": {"roles": []}}, "spec.template.roles: must have 1 items at least, not 0"),
        ({"template": {"roles": [{"name": "p"}]}}, "spec.template.roles[0].entryTemplate: is required"),
        (
            {"rolloutStrategy": {"type": "RoleRollingUpdate"}, "recoveryPolicy": "ServingGroupRecreate"},
            "spec.",
        ),
    ],
)
def test_refused_manifest_must_be_told_with_its_field(tmp_path: Path, change: Any, field: str) -> None:
    raw = serving("a", 1)
    lines = refusal("-f", write(tmp_path / "a.yaml", {**raw, "spec": {**raw["spec"], **change}}))
    assert "would be refused" in lines[0]
    assert any(line.strip().startswith(field) for line in lines[1:]), lines


def test_file_must_hold_the_one_that_is_meant(tmp_path: Path) -> None:
    both = write(tmp_path / "both.yaml", serving("a"), serving("b"))
    assert "has 2 ModelServings, not one" in refusal("-f", both)[0]
    assert "default/b" in run("-f", both, "--name", "b").stdout
    assert "has 0 ModelServings c, not one" in refusal("-f", both, "--name", "c")[0]
    other = write(tmp_path / "other.yaml", serving("c"))
    assert refusal("-f", both, "--name", "a", "--update", other)
    assert "No such file" in refusal("-f", str(tmp_path / "absent.yaml"))[0]
    assert "not both" in refusal("-f", both, "--from", both, "--update", both)[0]
