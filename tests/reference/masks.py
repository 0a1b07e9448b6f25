"""The masks of tinyloom's dropout, drawn from the numbers that decide them: Philox4x32-10 of the position, the
micro-step, the place in the model and the trainer's seed."""

import numpy as np
import torch

# Keeps the masks apart from other random numbers of the same seed.
DROPOUT = 0x6472_6F70
# The model's own places begin here: its embeddings, then for each layer the probabilities of attention, and what
# attention and the feed-forward block add.
MODEL = 1 << 16


def place_of(layer=None, kind=0):
    return MODEL if layer is None else MODEL + 1 + 3 * layer + kind


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011) of many counters [4, n] under one key [2]."""
    word = 0xFFFF_FFFF
    counter, key = [c.astype(np.uint64) for c in counter], list(key)
    for _ in range(10):
        x, z = counter[0] * np.uint64(0xD251_1F53), counter[2] * np.uint64(0xCD9E_8D57)
        high = lambda product: product >> np.uint64(32)
        low = lambda product: product & np.uint64(word)
        counter = [
            high(z) ^ counter[1] ^ np.uint64(key[0]),
            low(z),
            high(x) ^ counter[3] ^ np.uint64(key[1]),
            low(x),
        ]
        key = [(key[0] + 0x9E37_79B9) & word, (key[1] + 0xBB67_AE85) & word]
    return np.stack(counter)


class Masks:
    """What a micro-step leaves out."""

    def __init__(self, rate, seed):
        self.rate, self.seed = rate, seed
        self.micro_step = 0
        # The first row of the document that runs.
        self.row = 0

    def of(self, place, rows, columns):
        """0 or 1 / (1 - rate) by element. Four words of a block decide four elements of a row."""
        quads = -(-columns // 4)
        index = np.arange(self.row * quads, (self.row + rows) * quads)
        same = lambda x: np.full_like(index, x)
        words = philox([index, same(self.micro_step), same(place), same(DROPOUT)], (self.seed, 0))
        words = words.T.reshape(rows, 4 * quads)[:, :columns]
        kept = words >= int(self.rate * 2**32)
        return torch.from_numpy(kept / (1 - self.rate))

    def of_keys(self, place, heads, rows, tokens):
        """The same by head, row and key of a document of so many rows, in a batch of so many tokens. Four words of
        a block decide four keys that are eight apart."""
        at = np.arange(self.row, self.row + rows)
        head, row, key = np.meshgrid(np.arange(heads), at, at, indexing="ij")
        block = row * (-(-tokens // 32) * 8) + key // 32 * 8 + key % 8
        same = lambda x: np.full_like(block, x)
        places = place | head << 18
        words = philox([block, same(self.micro_step), places, same(DROPOUT)], (self.seed, 0))
        kept = np.take_along_axis(words, (key // 8 % 4)[None], axis=0)[0] >= int(self.rate * 2**32)
        return torch.from_numpy(kept / (1 - self.rate))
