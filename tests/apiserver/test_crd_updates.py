"""What a real API server makes of changes to a ModelServing: updates, /scale and /status."""

from __future__ import annotations

import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from tests.support.manifests import container, model_serving, pod_template, role
from tests.support.rawapi import Answer, RawApi
from tests.support.refusals import rolling_groups, with_minimums

pytestmark = pytest.mark.apiserver

REPORT: Raw = {
    "status": {
        "observedGeneration": 7,
        "conditions": [
            {
                "type": "Available",
                "status": "False",
                "reason": "InvalidSpec",
                "message": "what is wrong",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
}
"""What the controller may write."""


class Editor:
    """Creates ModelServings in one namespace and changes them."""

    def __init__(self, api: RawApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def create(self, manifest: Raw) -> str:
        """Create it; its name."""
        manifest["metadata"]["namespace"] = self.namespace
        answer = self.api.create(MODEL_SERVINGS, manifest)
        assert answer.code == 201, answer.body
        name: str = manifest["metadata"]["name"]
        return name

    def patch(self, name: str, patch: Raw, *, subresource: str = "") -> Answer:
        """A merge patch."""
        return self.api.patch(MODEL_SERVINGS, self.namespace, name, patch, subresource=subresource)

    def edit(self, name: str, spec: Raw) -> Answer:
        """A merge patch of the spec."""
        return self.patch(name, {"spec": spec})

    def scale(self, name: str, replicas: int) -> Answer:
        """What an autoscaler writes."""
        return self.patch(name, {"spec": {"replicas": replicas}}, subresource="scale")


@pytest.fixture
def editor(serving_api: RawApi, namespace: str) -> Editor:
    """An editor in a namespace of the test's own."""
    return Editor(serving_api, namespace)


@pytest.mark.covers("MS-5")
def test_gang_policy_must_not_be_removed(editor: Editor) -> None:
    name = editor.create(with_minimums({"prefill": 1}))
    answer = editor.edit(name, {"template": {"gangPolicy": None}})
    assert (answer.code, answer.fields) == (422, {"spec.template"})
    assert "gangPolicy cannot be removed" in answer.message


@pytest.mark.covers("MS-5")
def test_minimums_must_not_change_but_may_be_dropped_and_set_anew(editor: Editor) -> None:
    name = editor.create(with_minimums({"prefill": 1}))
    changed = editor.edit(name, {"template": {"gangPolicy": {"minRoleReplicas": {"prefill": 2}}}})
    assert (changed.code, changed.fields) == (422, {"spec.template.gangPolicy.minRoleReplicas"})
    assert editor.edit(name, {"template": {"gangPolicy": {"minRoleReplicas": None}}}).code == 200
    anew = editor.edit(name, {"template": {"gangPolicy": {"minRoleReplicas": {"prefill": 2}}}})
    assert anew.code == 200, anew.body


@pytest.mark.covers("MS-5")
def test_minimums_may_be_added_later(editor: Editor) -> None:
    name = editor.create(model_serving())
    added = editor.edit(name, {"template": {"gangPolicy": {"minRoleReplicas": {"prefill": 1}}}})
    assert added.code == 200, added.body


@pytest.mark.covers("MS-426")
def test_role_must_scale_below_its_minimum(editor: Editor) -> None:
    name = editor.create(with_minimums({"prefill": 2}, replicas=2))
    assert editor.edit(name, {"template": {"roles": [role(replicas=1)]}}).code == 200
    assert editor.edit(name, {"template": {"roles": [role(replicas=0)]}}).code == 200


@pytest.mark.covers("R14", "MS-12", "MS-24")
def test_scale_past_the_name_budget_must_be_refused_with_the_numbers(editor: Editor) -> None:
    name = editor.create(model_serving("a" * 49, replicas=9))
    answer = editor.scale(name, 11)
    assert (answer.code, answer.fields) == (422, {"metadata.name"})
    assert "has 49 characters" in answer.message
    assert "at most 48 (before -11-prefill-1-0)" in answer.message
    assert editor.scale(name, 8).code == 200


@pytest.mark.covers("R14")
def test_role_past_the_name_budget_must_be_refused(editor: Editor) -> None:
    name = editor.create(model_serving("a" * 49))
    answer = editor.edit(name, {"template": {"roles": [role(replicas=10)]}})
    assert (answer.code, answer.fields) == (422, {"metadata.name"})


@pytest.mark.covers("R14")
def test_status_in_the_same_write_must_not_open_the_name_budget(editor: Editor) -> None:
    name = editor.create(model_serving("a" * 49, replicas=9))
    assert editor.patch(name, REPORT, subresource="status").code == 200
    patch = {"spec": {"replicas": 11}, "status": {"observedGeneration": 99}}
    answer = editor.patch(name, patch)
    assert (answer.code, answer.fields) == (422, {"metadata.name"})
    sneaky = editor.patch(name, patch, subresource="status")
    assert sneaky.code == 200
    assert sneaky.body["spec"]["replicas"] == 9


@pytest.mark.covers("MS-204")
def test_scale_below_zero_must_be_refused(editor: Editor) -> None:
    assert editor.scale(editor.create(model_serving()), -1).code == 422


@pytest.mark.covers("MS-421")
@pytest.mark.parametrize("replicas", [5, 0])
def test_scale_must_not_mind_that_a_percentage_comes_to_nothing(editor: Editor, replicas: int) -> None:
    name = editor.create(model_serving(replicas=10, rolloutStrategy=rolling_groups(maxUnavailable="10%")))
    assert editor.scale(name, replicas).code == 200
    anew = editor.edit(name, {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxUnavailable": "11%"}}})
    assert anew.code == 422


@pytest.mark.covers("MS-2", "MS-113")
def test_scale_must_show_replicas_and_selector(editor: Editor) -> None:
    name = editor.create(model_serving(replicas=3))
    status = {"status": {"replicas": 2, "labelSelector": "a=b"}}
    assert editor.patch(name, status, subresource="status").code == 200
    answer = editor.api.get(MODEL_SERVINGS, editor.namespace, name, subresource="scale")
    assert answer.body["spec"] == {"replicas": 3}
    assert answer.body["status"] == {"replicas": 2, "selector": "a=b"}


@pytest.mark.covers("MS-2", "MS-8")
def test_status_must_only_be_written_through_its_subresource(editor: Editor) -> None:
    name = editor.create(model_serving())
    answer = editor.patch(name, {"status": {"replicas": 5}})
    assert "status" not in answer.body
    answer = editor.patch(name, REPORT, subresource="status")
    assert answer.body["status"]["conditions"][0]["reason"] == "InvalidSpec"


@pytest.mark.covers("MS-3")
def test_printer_columns_must_be_shown(editor: Editor) -> None:
    name = editor.create(model_serving())
    status = {"status": {"replicas": 3, "availableReplicas": 2, "updatedReplicas": 1}}
    editor.patch(name, status, subresource="status")
    table = editor.api.table(MODEL_SERVINGS, editor.namespace, name)
    columns = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert columns == ["Name", "Replicas", "Available", "Updated", "Age"]
    assert table["rows"][0]["cells"][:4] == [name, 3, 2, 1]


def test_new_pod_fields_must_survive_an_update_of_the_rest(editor: Editor) -> None:
    template = pod_template(container(env=[{"name": "A", "value": "$(ENTRY_ADDRESS)"}]), hostNetwork=True)
    name = editor.create(model_serving(roles=[role(entryTemplate=template)]))
    assert editor.edit(name, {"replicas": 2}).body["spec"]["template"]["roles"][0]["entryTemplate"] == {
        "spec": template["spec"]
    }
