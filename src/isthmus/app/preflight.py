"""Whether the cluster can be used at all, asked before anything starts, so that what is missing is one line
with what to do about it and not a stream of failures.

operator.py asks first which controllers have their APIs, then, once everything is built, whether all that is
to be watched may be listed. Each problem is a UserError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from isthmus import logs
from isthmus.api.meta import Resource
from isthmus.app.building import Building, Watched
from isthmus.app.options import OperatorOptions
from isthmus.errors import UserError
from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable

log = logs.get(__name__)

TIME_S: Final = 10.0
"""How long the cluster may take to answer the questions that are asked before the start."""
INSTALL: Final = "install the CRDs: isthmus crds | kubectl apply --server-side -f -"


async def served_controllers(
    options: OperatorOptions, client: Client, needs: Mapping[str, Sequence[Resource[Any]]]
) -> list[str]:
    """The chosen controllers whose APIs the cluster serves, in the order of `needs`. Of an API that is named
    in several versions one is enough.

    Raises UserError where one is missing of a controller that was asked for by name, and where none is left;
    the others are left out with a line in the log.
    """
    chosen = [name for name in needs if name in options.controllers]
    resources = list(dict.fromkeys(resource for name in chosen for resource in needs[name]))
    async with answers(options):
        found = await asyncio.gather(*(is_served(client, resource) for resource in resources))
    there = {resource.name for resource, served in zip(resources, found, strict=True) if served}
    lacking = {name: [resource for resource in needs[name] if resource.name not in there] for name in chosen}
    left = [name for name in chosen if not lacking[name]]
    off = [name for name in chosen if lacking[name]]
    if fatal := [name for name in off if not left or name in options.required]:
        raise _not_served([resource for name in fatal for resource in lacking[name]])
    for name in off:
        log.warning(
            "this controller stays off: the cluster does not serve its API; install the CRD and start again",
            controller=name,
            missing=[resource.name for resource in lacking[name]],
        )
    return left


async def may_watch(building: Building) -> None:
    """See that all that will be watched may be listed, and which optional APIs there are. Raises
    UserError."""
    options, client = building.options, building.client
    async with answers(options), asyncio.TaskGroup() as tasks:
        for watched in building.watched:
            for namespace in watched.namespaces:
                tasks.create_task(_may_list(client, watched, namespace))
        for optional in building.optionals:
            tasks.create_task(optional.look())
    async with answers(options), asyncio.TaskGroup() as tasks:
        for optional in building.optionals:
            if (resource := optional.served) is not None:
                watched = Watched(resource, "", optional.cache.sources)
                for namespace in watched.namespaces:
                    tasks.create_task(_may_list(client, watched, namespace))


@asynccontextmanager
async def answers(options: OperatorOptions) -> AsyncIterator[None]:
    """Whatever comes instead of answers, or not in time, is said as one UserError."""
    try:
        async with asyncio.timeout(TIME_S):
            yield
    except* UserError as group:
        raise next(_leaves(group)) from None
    except* (TimeoutError, Unreachable) as group:
        raise _unreachable(options, next(_leaves(group))) from None


async def is_served(client: Client, resource: Resource[Any]) -> bool:
    """Whether the cluster serves it. Raises UserError where it cannot say."""
    try:
        return await client.served(resource)
    except Unauthorized as error:
        raise _unauthorized(error) from error
    except ApiError as error:
        raise UserError(f"the cluster cannot be used now: {error}") from error


async def _may_list(client: Client, watched: Watched, namespace: str) -> None:
    resource = watched.resource
    try:
        await client.list_page(resource, namespace, label_selector=watched.selector, limit=1)
    except NotFound as error:
        raise _not_served([resource]) from error
    except Forbidden as error:
        everywhere = "in all namespaces" if resource.namespaced else "in the cluster"
        where = f"in namespace {namespace}" if namespace else everywhere
        raise UserError(
            f"not allowed to list {resource.name} {where}: {error.message}",
            hint="grant get, list and watch on it (docs/operator.md), or name namespaces with --namespace",
        ) from error
    except Unauthorized as error:
        raise _unauthorized(error) from error
    except ApiError as error:
        raise UserError(f"the cluster cannot be used now: {error}") from error


def _not_served(resources: Sequence[Resource[Any]]) -> UserError:
    names = ", ".join(f"{resource.name} at {resource.api_version}" for resource in resources)
    return UserError(f"the cluster does not serve {names}", hint=INSTALL)


def _unauthorized(error: Unauthorized) -> UserError:
    return UserError(
        f"the cluster does not accept our credentials: {error.message}",
        hint="see that the kubeconfig's user is valid: kubectl auth whoami",
    )


def _unreachable(options: OperatorOptions, cause: BaseException) -> UserError:
    text = str(cause) or f"no answer within {TIME_S:.0f} s"
    return UserError(
        f"cannot reach the cluster at {options.config.server} (from {options.config.source}): {text}",
        hint="see that --kubeconfig names the right cluster and that it runs: kubectl cluster-info",
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
