"""A dump for people: a tree of ModelServing, groups, roles, instances and pods, and decisions as lines.

debug.py prints what `cache_tree` and `decision_tree` return. Whatever is not Running has a mark as well as a
colour, so that it stands out on paper, in a log, and for those who do not see the colour. All texts go in as
`rich.text.Text` and through `visible`, so that a hostile name is neither markup nor a control sequence.
Nothing is printed or read here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from rich.text import Text
from rich.tree import Tree

from isthmus.api.names import ordinal
from isthmus.cli.dumps import visible
from isthmus.modelserving.dto import CacheDump, Decision, DecisionDump, RoleInstanceDTO, ServingGroupDTO

READY: Final = "Running"
MARK: Final = "! "
DETAIL: Final = "dim"
BAD: Final = "bold yellow"
STYLES: Final = {READY: "green", "Deleting": "bold red"}
MAX_PLANNED: Final = 20
"""How many planned actions of one decision are shown."""

V = TypeVar("V")


def cache_tree(dump: CacheDump) -> Tree | Text:
    """The whole dump, or a line that says that there is nothing in it."""
    if not dump:
        return Text("no ModelServing")
    root = Tree("", hide_root=True)
    for key, groups in sorted(dump.items()):
        branch = root.add(_title(key, "group", [group.status for group in groups.values()]))
        for name, group in _in_order(groups):
            _add_group(branch, name, group)
    return root


def _add_group(branch: Tree, name: str, group: ServingGroupDTO) -> None:
    node = branch.add(_item(name, group.status, group.revision))
    pods: dict[str, list[str]] = defaultdict(list)
    for pod in sorted(group.running_pods, key=_order):
        pods[pod.rpartition("-")[0]].append(pod)
    for role, instances in sorted(group.roles.items()):
        role_node = node.add(_title(role, "instance", [instance.status for instance in instances.values()]))
        for instance_id, instance in _in_order(instances):
            _add_instance(role_node, instance_id, instance, pods.pop(f"{name}-{instance_id}", []))
    for strays in pods.values():
        for pod in strays:
            node.add(Text.assemble((f"{MARK}{visible(pod)} belongs to no instance shown here", BAD)))


def _add_instance(branch: Tree, instance_id: str, instance: RoleInstanceDTO, pods: Iterable[str]) -> None:
    node = branch.add(_item(instance_id, instance.status, instance.role_template_hash))
    for pod in pods:
        node.add(Text(visible(pod), style=STYLES[READY]))


def _title(name: str, noun: str, statuses: list[str]) -> Text:
    """A name with how many it has below it, and how many of those are not ready."""
    waiting = sum(status != READY for status in statuses)
    count = f"{len(statuses)} {noun}{'' if len(statuses) == 1 else 's'}"
    if not waiting:
        return Text.assemble((visible(name), "bold"), "  ", (count, DETAIL))
    return Text.assemble((f"{MARK}{visible(name)}  {count}, {waiting} not ready", BAD))


def _item(name: str, status: str, detail: str) -> Text:
    style = STYLES.get(status, BAD)
    mark = "" if status == READY else MARK
    return Text.assemble(
        (f"{mark}{visible(name)}  {visible(status)}", style), "  ", (visible(detail), DETAIL)
    )


def _in_order(items: Mapping[str, V]) -> list[tuple[str, V]]:
    """By the number at the end of the name, as people count, then by name."""
    return sorted(items.items(), key=lambda item: _order(item[0]))


def _order(name: str) -> tuple[str, int, str]:
    return name.rpartition("-")[0], ordinal(name), name


def decision_tree(dump: DecisionDump) -> Tree | Text:
    """Each ModelServing with its decisions, oldest first, and each decision with what it planned and why."""
    if not dump:
        return Text("no decision")
    root = Tree("", hide_root=True)
    for key, decisions in sorted(dump.items()):
        branch = root.add(Text(visible(key), style="bold"))
        for decision in decisions:
            _add_decision(branch, decision)
    return root


def _add_decision(branch: Tree, decision: Decision) -> None:
    failed = decision.outcome.startswith("failed")
    outcome = f"{MARK if failed else ''}{visible(decision.outcome)}"
    trigger = f"  because of {visible(decision.trigger)}" if decision.trigger else ""
    node = branch.add(
        Text.assemble(
            visible(decision.time),
            "  ",
            (outcome, BAD if failed else "green"),
            (f"  in {decision.duration_seconds:.3f} s{trigger}", DETAIL),
        )
    )
    node.add(Text.assemble(("saw ", DETAIL), visible(_observed(decision))))
    for planned in decision.planned[:MAX_PLANNED]:
        what = f"{visible(planned.action)} {visible(planned.target)}"
        node.add(Text.assemble(what, (f"  {visible(planned.why)}", DETAIL)))
    if len(decision.planned) > MAX_PLANNED:
        node.add(Text(f"and {len(decision.planned) - MAX_PLANNED} more", style=DETAIL))


def _observed(decision: Decision) -> str:
    if isinstance(decision.observed, str):
        return decision.observed
    return ", ".join(f"{key} {value}" for key, value in decision.observed.items())
