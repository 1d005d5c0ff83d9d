"""Ask for a fault: the annotation of a pod or a Node, read and extended.

`isthmus sandbox fault` and tests call `inject`; the simulated node does the rest (faults.py, node.py).
Blocks.
"""

from __future__ import annotations

from isthmus.errors import UserError
from isthmus.kube.errors import NotFound
from isthmus.sandbox import faults
from isthmus.sandbox.faults import ANNOTATION, Kind
from isthmus.sandbox.sandbox import Cluster


def inject(cluster: Cluster, target: str, wanted: str, *, namespace: str = "default") -> str:
    """Add `wanted` (see faults.parse) to what goes wrong with a pod, or with a Node as `node/NAME`, and
    return all that does by then; `none` takes everything back.

    Raises UserError for a fault that there is not or an object that there is not, ApiError for the rest.
    """
    is_node = target.startswith("node/")
    name = target.removeprefix("node/").removeprefix("pod/")
    path = f"/api/v1/nodes/{name}" if is_node else f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        asked = faults.parse(wanted)
    except ValueError as error:
        raise UserError(str(error)) from error
    if is_node and any(fault.kind is not Kind.NODE_LOST for fault in asked):
        raise UserError("on a Node there is only node-lost")
    try:
        present = cluster.request(path)["metadata"].get("annotations", {}).get(ANNOTATION, "")
    except NotFound as error:
        where = "" if is_node else f" in namespace {namespace}"
        raise UserError(f"no {'Node' if is_node else 'pod'} {name!r}{where}") from error
    try:
        text: str | None = None
        for item in (part.strip() for part in wanted.split(",")) if asked else ():
            text = faults.extend(present if text is None else text, item)
    except ValueError as error:
        raise UserError(f"{target} has an annotation that is wrong: {error}") from error
    cluster.request(
        path,
        method="PATCH",
        body={"metadata": {"annotations": {ANNOTATION: text}}},
        content_type="application/merge-patch+json",
    )
    return text or ""
