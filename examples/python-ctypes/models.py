"""The two models that torch_train.py trains. Their point is that no two steps have the same shapes.

`Text` is a GPT-2-like decoder on drawn tokens; `Graph` is a GATv2-like attention network on random graphs, with
index_add_ for the sums over edges. Every operation used has a deterministic form, so that two runs with one seed give
the same losses to the last bit whatever the memory they were given.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Layer(nn.Module):
    """Attention and a perceptron, each with a norm before it and a sum after it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # the one fast kernel with a deterministic backward pass
            mixed = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
            )
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Text(nn.Module):
    SIZES = {
        # GPT-2 medium, as in the published traces: 24 layers, 1024 wide, sequences of 64 to 2048 tokens.
        "full": dict(width=1024, heads=16, layers=24, vocabulary=50257, longest=2048, batch=(4, 16)),
        "small": dict(width=512, heads=8, layers=8, vocabulary=32000, longest=1024, batch=(2, 8)),
    }
    STEPS = {"full": 120, "small": 60}

    def __init__(self, size: str, device):
        super().__init__()
        self.plan, self.device = self.SIZES[size], device
        width = self.plan["width"]
        self.tokens = nn.Embedding(self.plan["vocabulary"], width)
        self.places = nn.Embedding(self.plan["longest"], width)
        self.layers = nn.ModuleList(Layer(width, self.plan["heads"]) for _ in range(self.plan["layers"]))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.plan["vocabulary"], bias=False)
        self.to(device=device, dtype=torch.bfloat16)

    def shape(self, rng: random.Random, warm_up: bool):
        if warm_up:
            return 2, rng.randrange(64, 129)
        return rng.randint(*self.plan["batch"]), rng.randint(64, self.plan["longest"])

    def loss(self, shape, generator):
        batch, length = shape
        # Words of unequal frequency: there is something to learn, so the loss falls.
        tokens = torch.rand(batch, length + 1, generator=generator, device=self.device)
        tokens = (tokens**3 * self.plan["vocabulary"]).long()
        x = self.tokens(tokens[:, :-1]) + self.places(torch.arange(length, device=self.device))
        for layer in self.layers:
            x = layer(x)
        scores = self.head(self.norm(x)).float()
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))


class Attention(nn.Module):
    """One layer of GATv2: a node sums its neighbours, weighted by a softmax over its incoming edges."""

    def __init__(self, width_in: int, width: int, heads: int):
        super().__init__()
        self.heads, self.width = heads, width
        self.left, self.right = nn.Linear(width_in, width), nn.Linear(width_in, width)
        self.score = nn.Parameter(torch.randn(heads, width // heads) / width**0.5)

    def forward(self, x, source, target):
        nodes, shape = x.shape[0], (-1, self.heads, self.width // self.heads)
        sent = self.left(x).index_select(0, source).view(shape)
        both = sent + self.right(x).index_select(0, target).view(shape)
        score = (F.leaky_relu(both, 0.2) * self.score).sum(-1)
        weight = (score - score.detach().max()).exp()  # one maximum for all: no scatter-max needed
        total = weight.new_zeros(nodes, self.heads).index_add(0, target, weight)
        weight = weight / (total.index_select(0, target) + 1e-12)
        out = sent.new_zeros(nodes, *shape[1:]).index_add(0, target, sent * weight.unsqueeze(-1))
        return F.elu(out.view(nodes, self.width))


class Graph(nn.Module):
    SIZES = {
        "full": dict(features=128, width=256, heads=4, layers=3, nodes=(5_000, 60_000), degree=(4, 20)),
        "small": dict(features=128, width=128, heads=4, layers=3, nodes=(2_000, 20_000), degree=(4, 12)),
    }
    STEPS = {"full": 500, "small": 100}
    CLASSES = 40

    def __init__(self, size: str, device):
        super().__init__()
        self.plan, self.device = self.SIZES[size], device
        widths = [self.plan["features"]] + [self.plan["width"]] * self.plan["layers"]
        self.layers = nn.ModuleList(Attention(a, b, self.plan["heads"]) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], self.CLASSES)
        self.to(device)

    def shape(self, rng: random.Random, warm_up: bool):
        if warm_up:
            return 500, 500 * rng.randint(2, 5)
        nodes = rng.randint(*self.plan["nodes"])
        return nodes, int(nodes * rng.uniform(*self.plan["degree"]))

    def loss(self, shape, generator):
        nodes, edges = shape
        draw = dict(generator=generator, device=self.device)
        x = torch.randn(nodes, self.plan["features"], **draw)
        source, target = torch.randint(nodes, (2, edges), **draw).unbind(0)
        kinds = x[:, : self.CLASSES].argmax(1)  # something to learn
        for layer in self.layers:
            x = layer(x, source, target)
        return F.cross_entropy(self.head(x), kinds)


MODELS = {"text": Text, "graph": Graph}
