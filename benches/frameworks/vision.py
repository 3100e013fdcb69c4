"""A convolutional network like ResNet-50, on images of 128 to 336 pixels in batches of 8 to 96."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        out = 4 * width
        self.narrow = nn.Sequential(nn.Conv2d(width_in, width, 1, bias=False), nn.BatchNorm2d(width))
        self.middle = nn.Sequential(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))
        self.widen = nn.Sequential(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        same = width_in == out and stride == 1
        self.past = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(width_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x):
        return F.relu(self.past(x) + self.widen(F.relu(self.middle(F.relu(self.narrow(x))))))


class Images(nn.Module):
    SIZES = {
        "full": dict(width=64, blocks=(3, 4, 6, 3), sides=(128, 336), batch=(8, 96)),
        "small": dict(width=8, blocks=(1, 1), sides=(32, 64), batch=(2, 4)),
    }
    STEPS = {"full": 80, "small": 5}
    CLASSES = 1000

    def __init__(self, size: str, device):
        super().__init__()
        self.plan, self.device = self.SIZES[size], device
        width = self.plan["width"]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks, before = [], width
        for stage, count in enumerate(self.plan["blocks"]):
            for number in range(count):
                now = width << stage
                blocks.append(Bottleneck(before, now, 2 if stage and not number else 1))
                before = 4 * now
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(before, self.CLASSES)
        self.to(device=device, dtype=torch.bfloat16, memory_format=torch.channels_last)

    def shape(self, rng: random.Random, warm_up: bool):
        if warm_up:
            return 2, self.plan["sides"][0]
        return rng.randint(*self.plan["batch"]), 16 * rng.randint(*(side // 16 for side in self.plan["sides"]))

    def loss(self, shape, generator):
        batch, side = shape
        draw = dict(generator=generator, device=self.device)
        kinds = torch.randint(self.CLASSES, (batch,), **draw)
        # Something to learn: the class is the picture's brightness.
        x = torch.randn(batch, 3, side, side, **draw) + kinds.view(-1, 1, 1, 1) / self.CLASSES
        x = x.to(dtype=torch.bfloat16, memory_format=torch.channels_last)
        x = F.avg_pool2d(self.stem(x), 2)  # and not the largest of each: that one has no deterministic backward pass
        return F.cross_entropy(self.head(self.blocks(x).mean((2, 3))).float(), kinds)
