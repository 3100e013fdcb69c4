"""A language model of 1 B parameters, built like Llama, that answers requests: prompts in batches of 1 to 32, then a token at a
time, while the cache of keys and values grows."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def turned(x, places):
    """Rotary places: pairs of numbers turned by an angle that grows with the place."""
    half = x.shape[-1] // 2
    speeds = 10000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = places[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, shared: int, inner: int):
        super().__init__()
        self.heads, self.shared, self.part = heads, shared, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * self.part, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, places, cache):
        batch, length, width = x.shape
        normed = self.norm1(x)
        q = self.q(normed).view(batch, length, self.heads, self.part).transpose(1, 2)
        k, v = self.kv(normed).view(batch, length, 2 * self.shared, self.part).transpose(1, 2).chunk(2, 1)
        q, k = turned(q, places), turned(k, places)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed)), (k, v)


class Serving(nn.Module):
    SIZES = {
        "full": dict(width=2048, heads=32, shared=8, inner=8192, layers=16, vocabulary=32000, batch=(1, 32), prompt=(32, 768),
                     answer=(16, 64)),
        "small": dict(width=64, heads=4, shared=2, inner=128, layers=2, vocabulary=100, batch=(1, 4), prompt=(4, 16),
                      answer=(2, 6)),
    }  # fmt: skip
    STEPS = {"full": 16, "small": 5}

    def __init__(self, size: str, device):
        super().__init__()
        self.plan, self.device = self.SIZES[size], device
        width = self.plan["width"]
        parts = [self.plan[name] for name in ("heads", "shared", "inner")]
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)  # made as it stays: no allocator is to remember twice the weights
        with torch.device(device):
            self.tokens = nn.Embedding(self.plan["vocabulary"], width)
            self.layers = nn.ModuleList(Layer(width, *parts) for _ in range(self.plan["layers"]))
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, self.plan["vocabulary"], bias=False)
        torch.set_default_dtype(usual)

    def shape(self, rng: random.Random, warm_up: bool):
        if warm_up:
            return 1, 8, 4
        return tuple(rng.randint(*self.plan[name]) for name in ("batch", "prompt", "answer"))

    @torch.no_grad()
    def answer(self, shape, generator):
        """One batch of requests; the mean of the tokens that the model chose."""
        batch, length, count = shape
        tokens = torch.randint(self.plan["vocabulary"], (batch, length), generator=generator, device=self.device)
        caches, start, chosen = [None] * len(self.layers), 0, []
        for _ in range(count):
            places = torch.arange(start, start + tokens.shape[1], device=self.device)
            x = self.tokens(tokens)
            for number, layer in enumerate(self.layers):
                x, caches[number] = layer(x, places, caches[number])
            start += tokens.shape[1]
            tokens = self.head(self.norm(x[:, -1:])).argmax(-1)
            chosen.append(tokens)
        return torch.cat(chosen, 1).double().mean()
