"""The cache against a dictionary, under any interleaving of lists, events, late events, bookmarks and moves
between sources; what subscribers and indexes derive from its changes must be the same as what it holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from isthmus.api.meta import Key, Object
from isthmus.runtime.cache import Cache, Change
from isthmus.runtime.metrics import Metrics
from tests.support.things import THINGS, thing

NAMES = st.sampled_from("abcd")
UIDS = st.sampled_from(["u1", "u2"])
COLORS = st.sampled_from(["red", "blue"])


class CacheMachine(RuleBasedStateMachine):
    """One or two sources. The model keeps each key's object and source, and how far each source is."""

    @initialize(sources=st.sampled_from([("",), ("one", "two")]))
    def begin(self, sources: tuple[str, ...]) -> None:
        self.sources = sources
        self.cache: Cache[Object] = Cache(THINGS, sources=sources, metrics=Metrics())
        self.cache.add_index("color", lambda obj: obj.metadata.labels.values())
        self.cache.subscribe(self.hear)
        self.heard: dict[Key, Object] = {}
        self.model: dict[Key, tuple[Object, str]] = {}
        self.seen = dict.fromkeys(sources, 0)
        self.listed: set[str] = set()
        self.version = 10

    def hear(self, change: Change[Object]) -> None:
        """What a store would do; the old state must be the one that it was told before."""
        assert self.heard.get(change.key) is change.old
        assert change.old is not None or change.new is not None
        if change.old is not None and change.new is not None:
            assert change.old.metadata.uid == change.new.metadata.uid
        if change.new is not None:
            self.heard[change.key] = change.new
        else:
            del self.heard[change.key]
        assert self.cache.get(change.key) is change.new

    def draw(self, data: st.DataObject, *, late: bool) -> tuple[str, Object]:
        source = data.draw(st.sampled_from(self.sources))
        if late:
            version = data.draw(st.integers(1, self.version))
        else:
            self.version += data.draw(st.integers(1, 3))
            version = self.version
        obj = thing(data.draw(NAMES), version, uid=data.draw(UIDS), color=data.draw(COLORS))
        return source, obj

    def is_late(self, source: str, version: int) -> bool:
        late = version < self.seen[source]
        self.seen[source] = max(version, self.seen[source])
        return late

    @rule(data=st.data(), late=st.booleans())
    def upsert(self, data: st.DataObject, late: bool) -> None:
        source, obj = self.draw(data, late=late)
        self.cache.upsert(source, obj)
        version = int(obj.metadata.resource_version)
        if self.is_late(source, version):
            return
        held = self.model.get(obj.key)
        same = held is not None and held[0].metadata.uid == obj.metadata.uid
        if same and held is not None and version <= int(held[0].metadata.resource_version):
            return
        self.model[obj.key] = (obj, source)

    @rule(data=st.data(), late=st.booleans())
    def remove(self, data: st.DataObject, late: bool) -> None:
        source, obj = self.draw(data, late=late)
        self.cache.remove(source, obj)
        version = int(obj.metadata.resource_version)
        if self.is_late(source, version):
            return
        held = self.model.get(obj.key)
        if held is None or held[0].metadata.uid != obj.metadata.uid or held[1] != source:
            return
        if version >= int(held[0].metadata.resource_version):
            del self.model[obj.key]

    @rule(data=st.data(), names=st.sets(NAMES), back=st.integers(0, 5))
    def replace(self, data: st.DataObject, names: set[str], back: int) -> None:
        """A list: of things as they are held, changed, replaced or new. It may be older than events."""
        source = data.draw(st.sampled_from(self.sources))
        self.version += 1
        items = []
        for name in sorted(names):
            held = self.model.get(("ns", name))
            if held is not None and data.draw(st.booleans()):
                items.append(
                    thing(name, held[0].metadata.resource_version, uid=held[0].metadata.uid, color="red")
                )
            else:
                items.append(thing(name, self.version, uid=data.draw(UIDS), color=data.draw(COLORS)))
        self.cache.replace(source, items, str(self.version - back))
        self.seen[source] = self.version - back
        self.listed.add(source)
        self.model = {k: v for k, v in self.model.items() if v[1] != source or k[1] in names}
        for obj in items:
            held = self.model.get(obj.key)
            same = held is not None and held[0].metadata.uid == obj.metadata.uid
            if (
                same
                and held is not None
                and held[0].metadata.resource_version == obj.metadata.resource_version
            ):
                obj = held[0]
            self.model[obj.key] = (obj, source)

    @rule(data=st.data(), ahead=st.integers(-3, 3))
    def bookmark(self, data: st.DataObject, ahead: int) -> None:
        source = data.draw(st.sampled_from(self.sources))
        self.cache.progress(source, str(self.version + ahead))
        self.seen[source] = max(self.seen[source], self.version + ahead)
        self.version += max(ahead, 0)

    @rule(data=st.data())
    def api_vanishes(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(self.sources))
        self.cache.mark_absent(source)
        self.model = {k: v for k, v in self.model.items() if v[1] != source}
        self.seen[source] = 0
        self.listed.add(source)

    @rule(data=st.data())
    def api_appears(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(self.sources))
        self.cache.mark_unknown(source)
        self.listed.discard(source)

    @invariant()
    def cache_must_be_as_the_model(self) -> None:
        assert {obj.key: obj for obj in self.cache.values()} == {k: v[0] for k, v in self.model.items()}
        assert len(self.cache) == len(self.model)
        assert {s: self.cache.resource_version(s) for s in self.sources} == self.seen
        assert set(self.cache.missing_sources()) == set(self.sources) - self.listed
        assert self.cache.complete == (self.listed == set(self.sources))

    @invariant()
    def what_was_told_must_be_what_is_held(self) -> None:
        assert self.heard == {obj.key: obj for obj in self.cache.values()}

    @invariant()
    def index_must_be_what_a_search_finds(self) -> None:
        for color in ("red", "blue"):
            found = {obj.key: obj for obj in self.cache.values() if obj.metadata.labels["color"] == color}
            assert self.cache.by_index("color", color) == found

    @invariant()
    def memory_must_be_bounded_by_the_objects(self) -> None:
        owner = self.cache._owner
        assert owner is None or owner == {key: source for key, (_, source) in self.model.items()}


CacheMachine.TestCase.settings = settings(deadline=None)
TestCache = CacheMachine.TestCase
