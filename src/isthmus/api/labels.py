"""The label and annotation keys that ModelServing objects carry on the wire (MS-27, MS-30).

Read by the decoders of api/pods.py and written by the builders of modelserving/. Every key is upstream's: a
cluster that has objects of Kthena's controller is read without a migration. Nothing here computes anything.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "modelserving.volcano.sh/"
"""Every key below this prefix belongs to the controller; templates may not set one (MS-415)."""

NAME: Final = "modelserving.volcano.sh/name"
GROUP_NAME: Final = "modelserving.volcano.sh/group-name"
ROLE: Final = "modelserving.volcano.sh/role"
ROLE_ID: Final = "modelserving.volcano.sh/role-id"
REVISION: Final = "modelserving.volcano.sh/revision"
ROLE_TEMPLATE_HASH: Final = "modelserving.volcano.sh/role-template-hash"
ENTRY: Final = "modelserving.volcano.sh/entry"

ALL: Final = (NAME, GROUP_NAME, ROLE, ROLE_ID, REVISION, ROLE_TEMPLATE_HASH, ENTRY)

ENV: Final = ("GROUP_SIZE", "ENTRY_ADDRESS", "WORKER_INDEX")
"""The environment variables that the controller sets in each container (MS-29)."""

GANG_GROUP: Final = "scheduling.k8s.io/group-name"
TASK_SPEC: Final = "volcano.sh/task-spec"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
