"""What a real API server makes of a new ModelServing: MS-201 to MS-218, and our better rules of MS-4xx."""

from __future__ import annotations

import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from tests.support.manifests import container, model_serving, pod_template, role
from tests.support.rawapi import RawApi
from tests.support.refusals import REFUSED, ROLLING, UNKNOWN, in_template, rolling_groups, with_minimums

pytestmark = pytest.mark.apiserver


@pytest.mark.covers(*sorted({rule for row in REFUSED for rule in row[0].split()}))
@pytest.mark.parametrize(
    ("manifest", "field", "text"),
    [row[2:] for row in REFUSED],
    ids=[row[1] for row in REFUSED],
)
def test_bad_manifest_must_be_refused_with_its_field_and_numbers(
    serving_api: RawApi, manifest: Raw, field: str, text: str
) -> None:
    answer = serving_api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code == 422, answer.body
    assert answer.fields == {field}
    assert text in answer.message


@pytest.mark.covers("MS-4")
@pytest.mark.parametrize(("manifest", "field"), UNKNOWN, ids=[row[1] for row in UNKNOWN])
def test_unknown_field_must_be_refused_by_name(serving_api: RawApi, manifest: Raw, field: str) -> None:
    answer = serving_api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code == 400
    assert f'unknown field "{field}"' in answer.message


ACCEPTED: list[tuple[str, str, Raw]] = [
    ("MS-5", "the smallest manifest", model_serving()),
    ("MS-12", "a name at the limit", model_serving("a" * 49, replicas=9)),
    ("MS-207", "no workers, no template", model_serving(roles=[role(workerReplicas=0)])),
    (
        "MS-447",
        "no workers, empty template",
        model_serving(roles=[role(workerTemplate={"spec": {"containers": []}})]),
    ),
    (
        "MS-208",
        "maxUnavailable 4 of 3",
        model_serving(replicas=3, rolloutStrategy=rolling_groups(maxUnavailable=4)),
    ),
    *(
        (
            "MS-210",
            f"partition {value!r}",
            model_serving(replicas=3, rolloutStrategy=rolling_groups(partition=value)),
        )
        for value in (0, 3, 5, "50%")
    ),
    (
        "MS-212",
        "role maxUnavailable 3 of 3",
        model_serving(rolloutStrategy=ROLLING, roles=[role(replicas=3, maxUnavailable=3)]),
    ),
    (
        "MS-213",
        "role maxUnavailable with group rolling",
        model_serving(roles=[role(maxUnavailable=9)], rolloutStrategy=rolling_groups()),
    ),
    (
        "MS-213",
        "role partition with RoleRollingUpdate",
        model_serving(rolloutStrategy=ROLLING, roles=[role(partition="50%")]),
    ),
    ("MS-420", "a role of no replicas", model_serving(rolloutStrategy=ROLLING, roles=[role(replicas=0)])),
    ("MS-214", "no minimums", model_serving(template={"gangPolicy": {}})),
    ("MS-214", "minimums null", with_minimums(None)),
    ("MS-19", "minimum 2 of 2", with_minimums({"prefill": 2})),
    *(
        (
            "MS-215",
            f"{policy} with {kind}",
            model_serving(rolloutStrategy={"type": kind}, recoveryPolicy=policy),
        )
        for policy, kind in (
            ("RoleRecreate", "RoleRollingUpdate"),
            ("None", "RoleRollingUpdate"),
            ("ServingGroupRecreate", "ServingGroupRollingUpdate"),
            ("RoleRecreate", "ServingGroupRollingUpdate"),
            ("None", "ServingGroupRollingUpdate"),
        )
    ),
    ("MS-216", "a tab inside an image", in_template(image="a\tb")),
    ("MS-14", "an empty image", in_template(image="")),
    (
        "MS-218 MS-7",
        "two host aliases of one address",
        model_serving(
            roles=[
                role(
                    entryTemplate=pod_template(
                        hostAliases=[{"ip": "192.0.2.1", "hostnames": [n]} for n in ("a", "b")]
                    )
                )
            ]
        ),
    ),
    ("MS-4", "an empty pull policy, as templating leaves it", in_template(imagePullPolicy="")),
    ("MS-4", "numbers as quantities", in_template(resources={"limits": {"cpu": 2, "memory": "1Gi"}})),
    (
        "MS-107",
        "a plugin with free settings",
        model_serving(plugins=[{"name": "demo-pod-tweaks", "config": {"a": [1]}}]),
    ),
    ("MS-203", "replicas null, as absent", model_serving(replicas=None, roles=[role(replicas=None)])),
]


@pytest.mark.covers(*sorted({rule for row in ACCEPTED for rule in row[0].split()}))
@pytest.mark.parametrize("manifest", [row[2] for row in ACCEPTED], ids=[row[1] for row in ACCEPTED])
def test_good_manifest_must_be_accepted(serving_api: RawApi, manifest: Raw) -> None:
    answer = serving_api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code == 201, answer.body


@pytest.mark.covers("MS-5", "MS-6", "MS-203", "MS-427")
def test_defaults_must_be_set_by_the_api_server(serving_api: RawApi) -> None:
    manifest = model_serving(
        roles=[role(entryTemplate=pod_template(container(ports=[{"containerPort": 80}])), replicas=None)],
        rolloutStrategy={"rollingUpdateConfiguration": {}},
        plugins=[{"name": "demo-pod-tweaks", "scope": {}}],
    )
    answer = serving_api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code == 201, answer.body
    spec = answer.body["spec"]
    assert (spec["replicas"], spec["schedulerName"], spec["recoveryPolicy"]) == (1, "volcano", "RoleRecreate")
    assert spec["rolloutStrategy"] == {
        "type": "ServingGroupRollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": 1},
    }
    assert spec["plugins"] == [{"name": "demo-pod-tweaks", "type": "BuiltIn", "scope": {"target": "All"}}]
    assert spec["template"]["restartGracePeriodSeconds"] == 0
    (only,) = spec["template"]["roles"]
    assert (only["replicas"], only["maxUnavailable"], only["workerReplicas"]) == (1, 1, 0)
    pod = only["entryTemplate"]["spec"]
    assert pod["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert set(pod) == {"containers"}
