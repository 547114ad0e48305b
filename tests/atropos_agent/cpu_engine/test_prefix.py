"""What finished sequences computed is kept within its memory."""

from __future__ import annotations

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.prefix import PrefixStore

LONG = [(i * 7919) % 49000 for i in range(300)]


async def test_kept_prefixes_stay_within_their_memory(tiny: LoadedModel) -> None:
    store = PrefixStore(max_bytes=3 * tiny.model.new_cache(300).nbytes)
    for i in range(6):
        cache = tiny.model.new_cache(300)
        ids = [i, *LONG]
        cache.length = len(LONG)
        store.put(ids, cache)
    assert len(store) == 3
    assert store.find_best([5, *LONG])[0] == 300
    assert store.find_best([0, *LONG])[0] == 0
    store.find_best([3, *LONG])
    newer = tiny.model.new_cache(300)
    store.put([9], newer)
    assert store.find_best([3, *LONG])[0] == 300, "the entry used last is kept longest"
