from __future__ import annotations

import re

import pytest

from isthmus.api.crd.podspec import IMAGE_PATTERN, kubernetes_version, pod_spec


def test_every_reference_must_be_expanded() -> None:
    def references(value: object) -> bool:
        if isinstance(value, dict):
            return "$ref" in value or any(map(references, value.values()))
        return isinstance(value, list) and any(map(references, value))

    assert not references(pod_spec("x", containers=1))


def test_schema_must_name_the_kubernetes_it_comes_from() -> None:
    assert re.fullmatch(r"1\.\d+", kubernetes_version())


@pytest.mark.covers("MS-6")
def test_defaults_must_reach_into_the_pod() -> None:
    properties = pod_spec("x", containers=1)["properties"]
    port = properties["containers"]["items"]["properties"]["ports"]
    assert port["items"]["properties"]["protocol"]["default"] == "TCP"
    assert port["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert properties["imagePullSecrets"]["items"]["properties"]["name"]["default"] == ""


@pytest.mark.covers("MS-6")
def test_defaults_of_the_pod_itself_must_not_be_set() -> None:
    properties = pod_spec("x", containers=1)["properties"]
    for field in ("restartPolicy", "dnsPolicy", "terminationGracePeriodSeconds", "securityContext"):
        assert "default" not in properties[field], field


def test_required_text_must_have_no_default() -> None:
    container = pod_spec("x", containers=1)["properties"]["containers"]["items"]
    assert "default" not in container["properties"]["name"]
    assert container["required"] == ["name"]


@pytest.mark.covers("MS-7")
def test_host_aliases_must_have_no_keys() -> None:
    aliases = pod_spec("x", containers=1)["properties"]["hostAliases"]
    assert not [key for key in aliases if key.startswith("x-kubernetes-list")]


def test_quantities_must_take_numbers_and_text() -> None:
    resources = pod_spec("x", containers=1)["properties"]["containers"]["items"]["properties"]["resources"]
    quantity = resources["properties"]["limits"]["additionalProperties"]
    assert quantity["x-kubernetes-int-or-string"] is True
    for text in ("1", "500m", "1.5Gi", "1e3", "+2", "-1"):
        assert re.search(quantity["pattern"], text), text
    for text in ("1Gx", "", "GPU", "1 Gi"):
        assert not re.search(quantity["pattern"], text), text


def test_optional_choices_must_take_empty_text_as_core_types_do() -> None:
    properties = pod_spec("x", containers=1)["properties"]
    policy = properties["containers"]["items"]["properties"]["imagePullPolicy"]
    assert policy["enum"] == ["", "Always", "IfNotPresent", "Never"]
    unsatisfiable = properties["topologySpreadConstraints"]["items"]["properties"]["whenUnsatisfiable"]
    assert unsatisfiable["enum"] == ["DoNotSchedule", "ScheduleAnyway"]


@pytest.mark.covers("MS-14")
@pytest.mark.parametrize(
    ("image", "valid"),
    [("", True), ("a:1", True), ("a\tb", True), ("a b", False), (" a", False), ("  ", False), ("\t", False)],
)
def test_image_must_have_no_space_and_not_be_blank(image: str, valid: bool) -> None:
    assert (re.search(IMAGE_PATTERN, image) is not None) is valid


def test_copies_must_not_share_parts() -> None:
    pod_spec("x", containers=1)["properties"]["containers"].clear()
    assert pod_spec("x", containers=0)["properties"]["containers"]["type"] == "array"
