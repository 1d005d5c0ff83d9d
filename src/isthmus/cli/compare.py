"""Lists what the API server has of ModelServings and their pods, for `isthmus debug diff`.

Called by debug.py, and makes what differences.py compares. Pages are reduced as they come, so that a cluster
of 20,000 pods fits anywhere. Reads only.
"""

from __future__ import annotations

from typing import Final

from isthmus.api import labels
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.api.pods import SERVING_PODS, ServingPod
from isthmus.cli.differences import View, view
from isthmus.cli.dumps import Unreadable
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.client import Client
from isthmus.kube.config import load

TIMEOUT_S: Final = 10.0
"""How long one request to the API server may take, with its repeats."""


async def fetch_view(kubeconfig: str | None, namespace: str | None, name: str | None) -> View:
    """What the cluster of `kubeconfig` has in `namespace` (all where None), of ModelServing `name` (all where
    None). Raises UserError for a wrong configuration, and Unreadable where the server does not answer
    well."""
    config = load(kubeconfig)
    selector = f"{labels.GROUP_NAME},{labels.NAME}={name}" if name else labels.GROUP_NAME
    servings: list[ModelServing] = []
    pods: list[ServingPod] = []
    try:
        async with Client(config, timeout_s=TIMEOUT_S) as client:
            async for page in client.list_all(MODEL_SERVINGS, namespace or ""):
                servings += (serving for serving in page.items if name in (None, serving.metadata.name))
            async for pod_page in client.list_all(SERVING_PODS, namespace or "", label_selector=selector):
                pods += pod_page.items
    except UserError:
        raise
    except IsthmusError as problem:
        raise Unreadable(f"cannot list what the API server has: {problem}") from problem
    return view(servings, pods)
