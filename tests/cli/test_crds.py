from __future__ import annotations

import json

import yaml
from click.testing import CliRunner

from isthmus.api import crd
from isthmus.api.crd.admission import policies
from isthmus.cli.crds import command


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_crds_must_print_every_definition_as_yaml() -> None:
    assert list(yaml.safe_load_all(run())) == crd.definitions()


def test_crds_must_print_those_of_one_group() -> None:
    (group, *_) = crd.groups()
    assert list(yaml.safe_load_all(run("--group", group))) == crd.definitions(group)


def test_crds_must_print_policies_when_asked() -> None:
    printed = list(yaml.safe_load_all(run("--admission")))
    assert printed == [*crd.definitions(), *policies()]
    assert {each["kind"] for each in policies()} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


def test_crds_must_print_a_json_list() -> None:
    printed = json.loads(run("-o", "json"))
    assert (printed["kind"], printed["items"]) == ("List", crd.definitions())


def test_crds_must_name_the_groups_when_asked_for_another() -> None:
    result = CliRunner().invoke(command, ["--group", "none.example"])
    assert result.exit_code == 2
    for group in crd.groups():
        assert group in result.output


def test_printed_yaml_must_have_no_anchors() -> None:
    assert "&id" not in run()
