"""A mixture of experts on 1 000 to 60 000 tokens: how many each expert gets is decided by the data."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    """Each token goes to the two experts that its gate likes best."""

    def __init__(self, width: int, inner: int, count: int):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(count)
        )

    def forward(self, x):
        normed = self.norm(x)
        weights, chosen = self.gate(normed).float().softmax(-1).topk(2, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = x
        for number, expert in enumerate(self.experts):
            tokens, place = (chosen == number).nonzero(as_tuple=True)  # the host waits for how many there are
            if len(tokens):
                done = expert(normed.index_select(0, tokens)) * weights[tokens, place].unsqueeze(-1)
                out = out.index_add(0, tokens, done)
        return out


class Mixture(nn.Module):
    SIZES = {
        "full": dict(width=1024, inner=4096, experts=8, layers=4, vocabulary=8192, tokens=(1_000, 60_000)),
        "small": dict(width=32, inner=64, experts=4, layers=2, vocabulary=100, tokens=(20, 200)),
    }
    STEPS = {"full": 120, "small": 5}

    def __init__(self, size: str, device):
        super().__init__()
        self.plan, self.device = self.SIZES[size], device
        width = self.plan["width"]
        self.tokens = nn.Embedding(self.plan["vocabulary"], width)
        self.layers = nn.ModuleList(
            Experts(width, self.plan["inner"], self.plan["experts"]) for _ in range(self.plan["layers"])
        )
        self.head = nn.Linear(width, self.plan["vocabulary"], bias=False)
        self.to(device=device, dtype=torch.bfloat16)

    def shape(self, rng: random.Random, warm_up: bool):
        return 64 if warm_up else rng.randint(*self.plan["tokens"])

    def loss(self, shape, generator):
        draw = torch.rand(shape, generator=generator, device=self.device)
        tokens = (draw**3 * self.plan["vocabulary"]).long()
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x), (tokens * 7 + 1) % self.plan["vocabulary"])
