import torch

from csd_pipeline.decoding.cache import RowCache, cache_argument


def filled(cache: RowCache, slots, limit):
    """Writes the slot number into keys and its negative into values; returns what attention reads."""
    slots = torch.tensor(slots)
    cache.place(slots, limit)
    states = slots[:, None, :, None].expand(-1, 2, -1, 3).float()
    return cache.layers[0].update(states, -states)


def test_rows_write_at_their_own_slots_and_rollback_overwrites():
    cache = RowCache(1, capacity=8)
    keys, values = filled(cache, [[0, 1, 2], [0, 1, 2]], 3)
    assert keys.shape == values.shape == (2, 2, 3, 3)
    storage = cache.layers[0].keys.data_ptr()
    keys, values = filled(cache, [[3, 4], [1, 2]], 5)
    assert keys[:, 0, :, 0].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]] and torch.equal(values, -keys)
    assert cache.layers[0].keys.data_ptr() == storage == keys.data_ptr()


def test_kept_rows_move_to_the_front_of_the_same_storage():
    cache = RowCache(1, capacity=4)
    filled(cache, [[0, 1], [1, 2], [2, 3]], 4)
    storage = cache.layers[0].keys.data_ptr()
    before = cache.layers[0].keys.clone()
    cache.keep_rows(torch.tensor([1, 2]))
    keys, _ = filled(cache, [[0], [0]], 4)
    assert torch.equal(keys[:, :, 1:], before[[1, 2], :, 1:]) and (keys[:, :, 0] == 0).all()
    assert keys.data_ptr() == storage


def test_cache_argument_follows_the_model():
    class Old(torch.nn.Module):
        def forward(self, past_key_values=None):
            pass

    class New(torch.nn.Module):
        def forward(self, cache=None):
            pass

    assert cache_argument(Old()) == "past_key_values" and cache_argument(New()) == "cache"
