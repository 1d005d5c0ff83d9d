"""`isthmus plan`: what a ModelServing's manifest makes, and the steps of an update, without a cluster.

Called through cli/main.py. The manifest gets the CRD's defaults and checks (api/admit.py, api/validation.py),
and the operator's own planner works on a made-up cluster (modelserving/plan/foresee.py); this module reads
the files and shows what came of it. Exit codes: 0 planned, 2 the manifest would be refused or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from isthmus.errors import UserError

if TYPE_CHECKING:
    from isthmus.api.modelserving import ModelServing
    from isthmus.modelserving.plan.foresee import Step, World

KIND: Final = "ModelServing"
EPOCH_S: Final = 0.0
"""When the made-up cluster begins; nothing that is shown depends on it."""


class _Planned(NamedTuple):
    """What came of it: the ModelServing, the cluster after the last step, and the steps of the update."""

    serving: ModelServing
    world: World
    steps: list[Step] | None


_file = click.Path(path_type=Path, allow_dash=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-f", "--filename", "file", type=_file, required=True, help="The manifest (- for stdin).")
@click.option("--from", "before", type=_file, help="What it is an update of: plan the steps from there.")
@click.option("--update", "after", type=_file, help="What it is updated to: plan the steps to there.")
@click.option("--name", default="", help="The ModelServing, where a file has several.")
@click.option("-n", "--namespace", default="", help="Where the manifest names none.  [default: default]")
@click.option(
    "--gang/--no-gang", default=True, show_default=True, help="Whether the cluster has Volcano's PodGroups."
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True
)
def command(file: Path, before: Path | None, after: Path | None, output: str, **options: Any) -> None:
    """Print the objects that a ModelServing makes, and the steps that an update takes.

    Nothing is asked of a cluster. The steps are those of a cluster in which nothing fails and every pod is
    ready at once; one more step begins when the one before it is done.
    """
    if before is not None and after is not None:
        raise UserError("give --from or --update, not both")
    first, second = (before, file) if before is not None else (file, after)
    planned = _plan(first, second, options)
    if output == "text":
        click.echo("\n".join(_text(planned)))
        return
    import msgspec

    document = msgspec.to_builtins(_document(planned))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def _plan(first: Path, second: Path | None, options: dict[str, Any]) -> _Planned:
    from isthmus.modelserving.plan.foresee import World

    old = _serving(first, options)
    world = World(EPOCH_S, gang=options["gang"])
    list(world.settle(old))
    if second is None:
        return _Planned(old, world, None)
    new = _serving(second, {**options, "name": options["name"] or old.metadata.name})
    if new.key != old.key:
        raise UserError(f"{second}: is {'/'.join(new.key)}, and no update of {'/'.join(old.key)}")
    return _Planned(new, world, list(world.settle(new)))


def _serving(path: Path, options: dict[str, Any]) -> ModelServing:
    """The one ModelServing of a file, as the API server would store it. Raises UserError with each field
    that it would refuse."""
    import msgspec

    from isthmus.api.admit import admit
    from isthmus.api.crd.modelserving import schema
    from isthmus.api.decode import Unreadable
    from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
    from isthmus.api.validation import problems
    from isthmus.cli.manifests import documents

    found = [each for each in documents(path) if each["kind"] == KIND]
    if options["name"]:
        found = [each for each in found if each["metadata"].get("name") == options["name"]]
    if len(found) != 1:
        named = f" {options['name']}" if options["name"] else ""
        hint = "name one with --name" if found else ""
        raise UserError(f"{path}: has {len(found)} ModelServings{named}, not one", hint=hint)
    raw, wrong = admit(found[0], schema())
    if raw.get("apiVersion") != MODEL_SERVINGS.api_version:
        wrong.insert(0, f"apiVersion: must be {MODEL_SERVINGS.api_version}, not {raw.get('apiVersion')!r}")
    if not raw["metadata"].get("name"):
        wrong.insert(0, "metadata.name: is required")
    if not wrong:
        raw["metadata"] = {"namespace": options["namespace"] or "default", **raw["metadata"]}
        try:
            serving = msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing)
        except (msgspec.MsgspecError, TypeError) as error:
            raise UserError(f"{path}: {error}") from error
        if isinstance(serving.spec, Unreadable):
            wrong = [serving.spec.reason]
        else:
            wrong = [str(each) for each in problems(serving.metadata.name, serving.spec)]
    if wrong:
        raise UserError(f"{path} would be refused:\n  " + "\n  ".join(wrong))
    return serving


def _ordered(world: World) -> list[tuple[str, str]]:
    """(kind, name) in the order in which they are made, names as people count."""
    from isthmus.api.names import ordinal

    def order(each: tuple[str, str]) -> tuple[int, list[tuple[int, str]]]:
        kind, name = each
        parts = [(ordinal(f"-{part}"), part) for part in name.split("-")]
        return _KINDS.index(kind), parts

    return sorted(world.raw, key=order)


_KINDS: Final = ("ControllerRevision", "PodGroup", "Service", "Pod")


def _document(planned: _Planned) -> dict[str, Any]:
    items = [planned.world.raw[each] for each in _ordered(planned.world)]
    if planned.steps is None:
        return {"apiVersion": "v1", "kind": "List", "items": items}
    steps = [
        {
            "availableReplicas": step.planned.status.available_replicas,
            "replicas": step.planned.status.replicas,
            "reasons": _reasons(step),
            "actions": [each._asdict() for each in _described(step)],
        }
        for step in planned.steps
    ]
    return {"steps": steps, "objects": items}


class _Described(NamedTuple):
    action: str
    target: str
    why: str


def _described(step: Step) -> list[_Described]:
    from isthmus.modelserving.decisions import describe

    return [_Described(each.action, each.target, each.why) for each in map(describe, step.actions)]


def _reasons(step: Step) -> Sequence[str]:
    from isthmus.modelserving.plan.model import Act

    return step.planned.decision.reasons if isinstance(step.planned.decision, Act) else ()


def _text(planned: _Planned) -> Iterator[str]:
    kinds = [kind for kind, _ in planned.world.raw]
    counts = ", ".join(f"{kinds.count(kind)} {_plural(kind, kinds.count(kind))}" for kind in _KINDS[::-1])
    status = planned.world.status
    yield f"ModelServing {'/'.join(planned.serving.key)}: {_number(status.replicas, 'group')}, {counts}"
    if planned.steps is None:
        for kind, name in _ordered(planned.world):
            yield f"  {kind} {name}"
        return
    if not planned.steps:
        yield "The update changes no object."
        return
    yield f"The update takes {_number(len(planned.steps), 'step')}:"
    for number, step in enumerate(planned.steps, 1):
        done = step.planned.status
        yield f"{number:>3}. {done.available_replicas} of {_number(done.replicas, 'group')} available"
        for reason in _reasons(step):
            yield f"       {reason}"


def _plural(kind: str, count: int) -> str:
    return kind if count == 1 else f"{kind}s"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
