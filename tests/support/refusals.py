"""ModelServing manifests that the API server must refuse: rules, words for people, manifest, field, text.

tests/apiserver/test_crd_modelserving.py sends each one; the rules in the first column are what it covers.
"""

from __future__ import annotations

from isthmus.api import labels
from isthmus.api.meta import Raw
from tests.support.manifests import container, model_serving, pod_template, role

ROLLING = {"type": "RoleRollingUpdate"}
PERCENT = "must be an integer of 0 or more, or a percentage from 0% to 100%"


def rolling_groups(**configuration: object) -> Raw:
    return {"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": configuration}


def in_template(**fields: object) -> Raw:
    """A ModelServing whose only entry container has these fields."""
    return model_serving(roles=[role(entryTemplate=pod_template(container(**fields)))])


def labelled(**values: str) -> Raw:
    return model_serving(roles=[role(entryTemplate={"metadata": {"labels": values}, **pod_template()})])


def with_minimums(minimums: object, replicas: int = 2) -> Raw:
    return model_serving(
        roles=[role(replicas=replicas)], template={"gangPolicy": {"minRoleReplicas": minimums}}
    )


REFUSED: list[tuple[str, str, Raw, str, str]] = [
    # rules, what, manifest, field, part of the message
    (
        "MS-201 MS-12 R14",
        "name of 77 characters",
        model_serving("a" * 77),
        "metadata.name",
        "has 77 characters",
    ),
    (
        "MS-202 MS-12 R14",
        "long name, counts absent",
        model_serving("a" * 50),
        "metadata.name",
        "at most 49 (before -1-prefill-1-0)",
    ),
    (
        "MS-12 R14",
        "long name with more digits",
        model_serving("a" * 49, replicas=10),
        "metadata.name",
        "at most 48 (before -10-prefill-1-0)",
    ),
    (
        "MS-12 R14",
        "long name with a long second role",
        model_serving(
            "a" * 46,
            replicas=100,
            roles=[
                role("a"),
                role("decode", replicas=100, workerReplicas=10, workerTemplate=pod_template()),
            ],
        ),
        "metadata.name",
        "at most 45 (before -100-decode-100-10)",
    ),
    ("MS-204", "replicas -1", model_serving(replicas=-1), "spec.replicas", "greater than or equal to 0"),
    (
        "MS-204",
        "role replicas -1",
        model_serving(roles=[role(replicas=-1)]),
        "spec.template.roles[0].replicas",
        "greater than or equal to 0",
    ),
    ("MS-5", "replicas past 32 bits", model_serving(replicas=2**31), "spec.replicas", "2147483647"),
    ("MS-205", "no roles", model_serving(roles=[]), "spec.template.roles", "at least 1"),
    (
        "MS-5",
        "five roles",
        model_serving(roles=[role(f"r{i}") for i in range(5)]),
        "spec.template.roles",
        "Too many: 5: must have at most 4",
    ),
    (
        "MS-5",
        "two roles of one name",
        model_serving(roles=[role("a"), role("b"), role("a")]),
        "spec.template.roles",
        "these are not: a a",
    ),
    (
        "MS-206 MS-13",
        "role Prefill",
        model_serving(roles=[role(), role("Prefill")]),
        "spec.template.roles[1].name",
        "is Prefill",
    ),
    ("MS-206", "role 1role", model_serving(roles=[role("1role")]), "spec.template.roles[0].name", "is 1role"),
    ("MS-206", "role role-", model_serving(roles=[role("role-")]), "spec.template.roles[0].name", "is role-"),
    (
        "MS-5 R14",
        "role of 13 characters",
        model_serving(roles=[role("a" * 13)]),
        "spec.template.roles[0].name",
        "12",
    ),
    (
        "MS-207 MS-15",
        "workers without a template",
        model_serving(roles=[role(workerReplicas=1)]),
        "spec.template.roles[0].workerTemplate",
        "Required value",
    ),
    (
        "MS-207",
        "workerReplicas -1",
        model_serving(roles=[role(workerReplicas=-1)]),
        "spec.template.roles[0].workerReplicas",
        "greater than or equal to 0",
    ),
    (
        "MS-447",
        "workers without containers",
        model_serving(roles=[role(workerReplicas=1, workerTemplate={"spec": {"containers": []}})]),
        "spec.template.roles[0].workerTemplate",
        "at least one container",
    ),
    *(
        (
            f"{rules} MS-17",
            f"maxUnavailable {value!r} of {replicas}",
            model_serving(replicas=replicas, rolloutStrategy=rolling_groups(maxUnavailable=value)),
            "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
            text,
        )
        for rules, value, replicas, text in (
            ("MS-208", 0, 3, "maxUnavailable 0 of 3 replicas comes to 0"),
            ("MS-208", "0%", 3, "maxUnavailable 0% of 3 replicas comes to 0"),
            ("MS-208", "invalid", 3, f"{PERCENT} such as 25%; is invalid"),
            ("MS-209 MS-16", "1", 3, PERCENT),
            ("MS-209", "10%", 5, "maxUnavailable 10% of 5 replicas comes to 0"),
            ("MS-209", "50%", 0, "maxUnavailable 50% of 0 replicas comes to 0"),
            ("MS-16", True, 3, "must be of type integer,string"),
            ("MS-16", 1.5, 3, "must be of type integer,string"),
        )
    ),
    *(
        (
            "MS-210 MS-16",
            f"partition {value!r}",
            model_serving(replicas=3, rolloutStrategy=rolling_groups(partition=value)),
            "spec.rolloutStrategy.rollingUpdateConfiguration.partition",
            f"{PERCENT} such as 25%; is {value}",
        )
        for value in (-1, "110%")
    ),
    (
        "MS-211 MS-17",
        "group bounds with RoleRollingUpdate",
        model_serving(rolloutStrategy=ROLLING | {"rollingUpdateConfiguration": {"maxUnavailable": 1}}),
        "spec.rolloutStrategy.rollingUpdateConfiguration",
        "belongs to ServingGroupRollingUpdate",
    ),
    *(
        (
            "MS-212 MS-18",
            f"role maxUnavailable {value!r} of {replicas}",
            model_serving(
                rolloutStrategy=ROLLING,
                roles=[role("ok"), role("bad", replicas=replicas, maxUnavailable=value)],
            ),
            "spec.template.roles",
            f"not so for bad ({value} of {replicas})",
        )
        for value, replicas in ((4, 3), (0, 3), ("10%", 3), ("50%", 1))
    ),
    (
        "MS-16",
        "role maxUnavailable 'x'",
        model_serving(roles=[role(maxUnavailable="x")]),
        "spec.template.roles[0].maxUnavailable",
        PERCENT,
    ),
    (
        "MS-213 MS-18",
        "role partition without RoleRollingUpdate",
        model_serving(roles=[role("a"), role("b", partition=1)]),
        "spec.template.roles",
        "set on b",
    ),
    (
        "MS-214 MS-19",
        "minimum of an unknown role",
        with_minimums({"other": 1}),
        "spec.template.gangPolicy.minRoleReplicas",
        "there are prefill",
    ),
    (
        "MS-214 MS-19",
        "minimum 10 of 2",
        with_minimums({"prefill": 10}),
        "spec.template.gangPolicy.minRoleReplicas",
        "prefill (10 of 2)",
    ),
    (
        "MS-214 MS-19",
        "minimum -1",
        with_minimums({"prefill": -1}),
        "spec.template.gangPolicy.minRoleReplicas.prefill",
        "greater than or equal to 0",
    ),
    (
        "MS-215 MS-20",
        "ServingGroupRecreate with RoleRollingUpdate",
        model_serving(rolloutStrategy=ROLLING, recoveryPolicy="ServingGroupRecreate"),
        "spec.rolloutStrategy.type",
        "cannot go with",
    ),
    *(
        (
            "MS-216 MS-14",
            f"image {image!r}",
            in_template(image=image),
            "spec.template.roles[0].entryTemplate.spec.containers[0].image",
            "should match",
        )
        for image in ("a b", "  ", "\t")
    ),
    (
        "MS-447",
        "image of an init container",
        model_serving(roles=[role(entryTemplate=pod_template(initContainers=[container(image="a b")]))]),
        "spec.template.roles[0].entryTemplate.spec.initContainers[0].image",
        "should match",
    ),
    ("MS-217", "name a.b", model_serving("a.b"), "metadata.name", "DNS-1035"),
    ("MS-217", "name 1a", model_serving("1a"), "metadata.name", "DNS-1035"),
    (
        "MS-447",
        "entry template without a spec",
        model_serving(roles=[role(entryTemplate={})]),
        "spec.template.roles[0].entryTemplate.spec",
        "Required value",
    ),
    (
        "MS-447",
        "entry template without containers",
        model_serving(roles=[role(entryTemplate={"spec": {"containers": []}})]),
        "spec.template.roles[0].entryTemplate.spec.containers",
        "at least 1",
    ),
    *(
        (
            "MS-415",
            f"label {key}",
            labelled(**{key: "x"}),
            "spec.template.roles[0].entryTemplate.metadata.labels",
            f"in a template: {key}",
        )
        for key in labels.ALL
    ),
    *(
        (
            "MS-29 MS-415",
            f"variable {name} in {field}",
            model_serving(
                roles=[
                    role(
                        workerReplicas=1,
                        workerTemplate=pod_template(
                            **{field: [container(name="c", env=[{"name": "A"}, {"name": name}])]}
                        ),
                    )
                ]
            ),
            f"spec.template.roles[0].workerTemplate.spec.{field}[0].env[1].name",
            f"{name} is set by the controller",
        )
        for name, field in zip(labels.ENV, ("containers", "initContainers", "containers"), strict=True)
    ),
    (
        "R14",
        "a label value that no pod may have",
        labelled(team="a b"),
        "spec.template.roles[0].entryTemplate.metadata.labels.team",
        "should match",
    ),
    (
        "MS-422",
        "unknown plugin",
        model_serving(plugins=[{"name": "none-such"}]),
        "spec.plugins[0].name",
        "demo-pod-tweaks",
    ),
    (
        "MS-427",
        "plugin target with a typo",
        model_serving(plugins=[{"name": "demo-pod-tweaks", "scope": {"target": "entry"}}]),
        "spec.plugins[0].scope.target",
        '"All", "Entry", "Worker"',
    ),
    (
        "MS-5",
        "unknown policy",
        model_serving(recoveryPolicy="Restart"),
        "spec.recoveryPolicy",
        "RoleRecreate",
    ),
    (
        "MS-5",
        "text for a number",
        model_serving(template={"restartGracePeriodSeconds": "60s"}),
        "spec.template.restartGracePeriodSeconds",
        "must be of type integer",
    ),
    (
        "MS-4",
        "typo in a pull policy",
        in_template(imagePullPolicy="Rarely"),
        "spec.template.roles[0].entryTemplate.spec.containers[0].imagePullPolicy",
        "IfNotPresent",
    ),
    (
        "MS-4",
        "text for a list of containers",
        model_serving(roles=[role(entryTemplate={"spec": {"containers": "x"}})]),
        "spec.template.roles[0].entryTemplate.spec.containers",
        "must be of type array",
    ),
    (
        "MS-4",
        "a quantity with a typo",
        in_template(resources={"limits": {"memory": "1Gx"}}),
        "spec.template.roles[0].entryTemplate.spec.containers[0].resources.limits.memory",
        "should match",
    ),
]


UNKNOWN: list[tuple[Raw, str]] = [
    (model_serving(replica=1), "spec.replica"),
    (model_serving(roles=[role(maxUnavailble=1)]), "spec.template.roles[0].maxUnavailble"),
    (
        in_template(imagePulPolicy="x"),
        "spec.template.roles[0].entryTemplate.spec.containers[0].imagePulPolicy",
    ),
    (
        model_serving(roles=[role(workerTemplate={"metadata": {"name": "x"}})]),
        "spec.template.roles[0].workerTemplate.metadata.name",
    ),
]
