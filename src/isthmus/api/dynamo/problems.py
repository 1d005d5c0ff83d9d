"""What keeps a graph from being made at all, with the field at fault (G-5, GD-13, GD-18).

normalise.py asks for it. The CRD refuses most of this at admission; objects that came past it, and what no
schema can see, such as the length of `<Kubernetes namespace>-<graph>`, are found here. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from isthmus.api.dynamo.analysis import EPP, GraphMeta
from isthmus.api.dynamo.model import MAIN, MAX_COMPONENTS, Finding, GraphComponent
from isthmus.api.dynamo.names import component_service_name, dynamo_namespace
from isthmus.api.dynamo.template import main_container
from isthmus.api.names import INT32_MAX, LABEL_LIMIT, is_dns_label

NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?")


def problems(meta: GraphMeta, components: Sequence[GraphComponent]) -> tuple[Finding, ...]:
    """All of them, those of the whole graph first."""
    return (*_of_graph(meta, components), *(f for each in components for f in _of_component(meta, each)))


def _of_graph(meta: GraphMeta, components: Sequence[GraphComponent]) -> Iterator[Finding]:
    if len(components) > MAX_COMPONENTS:
        text = f"must have at most {MAX_COMPONENTS} components; has {len(components)}"
        yield Finding("spec.components", text)
    namespace = dynamo_namespace(meta.namespace, meta.name)
    if len(namespace) > LABEL_LIMIT:
        text = f"{namespace} would be a label of {len(namespace)} characters; {LABEL_LIMIT} are possible"
        yield Finding("metadata.name", text)
    if len(meta.name) > LABEL_LIMIT:
        yield Finding(
            "metadata.name", f"must have at most {LABEL_LIMIT} characters, as it is a label's value"
        )
    first: dict[str, str] = {}
    for each in components:
        other = first.setdefault(component_service_name(meta.name, each.name), each.path)
        if other != each.path:
            yield Finding(f"{each.path}.name", f"is that of {other}, if case is ignored")
    pickers = [each.path for each in components if each.type == EPP]
    for path in pickers[1:]:
        yield Finding(f"{path}.type", f"only one component may be of type {EPP}, and {pickers[0]} is")


def _of_component(meta: GraphMeta, each: GraphComponent) -> Iterator[Finding]:
    if len(each.name) > LABEL_LIMIT or not NAME.fullmatch(each.name):
        text = f"must be letters, digits and hyphens, at most {LABEL_LIMIT}; is {each.name[:100]!r}"
        yield Finding(f"{each.path}.name", text)
        return
    service = component_service_name(meta.name, each.name)
    if not is_dns_label(service):
        text = f"{service} cannot be a Service's name: it must be a DNS-1035 label of at most 63 characters"
        yield Finding(f"{each.path}.name", text)
    if not 0 <= each.replicas <= INT32_MAX:
        yield Finding(f"{each.path}.replicas", f"must be 0 or more, and fit 32 bits; is {each.replicas}")
    main = main_container(each.raw_template)
    if main is None:
        yield Finding(f"{each.path}.podTemplate", f"must have a container {MAIN}")
    elif not str(main.get("image") or "").strip():
        yield Finding(f"{each.path}.podTemplate", f"its container {MAIN} must have an image")
    sidecar = each.frontend_sidecar
    names = [container["name"] for container in each.raw_template.get("spec", {}).get("containers", ())]
    if sidecar and (sidecar == MAIN or sidecar not in names):
        yield Finding(f"{each.path}.frontendSidecar", f"{sidecar} is no other container of the template")
