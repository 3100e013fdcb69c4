"""Programs with 3 to 8 GiB live, where a chunk too many is a share that one sees: one model that generates, a graph network on
sampled neighbours, and four models that serve in four threads, each on a stream of its own."""

import random
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from serving import Serving
from torch import nn


class Generating(Serving):
    """Few requests at a time, and long answers: each step of each layer makes its cache anew, one token longer."""

    SIZES = {
        "full": dict(Serving.SIZES["full"], batch=(1, 8), prompt=(32, 768), answer=(32, 128)),
        "small": Serving.SIZES["small"],
    }
    STEPS = {"full": 20, "small": 5}


class Threads(nn.Module):
    """Four models; a step gives each thread one batch of requests."""

    SIZES = {"full": 4, "small": 2}
    STEPS = {"full": 10, "small": 3}

    def __init__(self, size: str, device):
        super().__init__()
        self.models = nn.ModuleList(Generating(size, device) for _ in range(self.SIZES[size]))
        self.streams = [torch.cuda.Stream(device) for _ in self.models]
        self.generators = [torch.Generator(device).manual_seed(number) for number in range(len(self.models))]
        self.threads = ThreadPoolExecutor(len(self.models))

    def shape(self, rng: random.Random, warm_up: bool):
        return [model.shape(rng, warm_up) for model in self.models]

    def answer(self, shapes, _generator):
        def one(number):
            with torch.cuda.stream(self.streams[number]):
                answer = self.models[number].answer(shapes[number], self.generators[number])
                answer.record_stream(torch.cuda.default_stream(answer.device))
                return answer

        answers = list(self.threads.map(one, range(len(self.models))))
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        return torch.stack(answers).mean()


class Neighbours(nn.Module):
    """Three layers over neighbours that are drawn anew for each batch of nodes; no two batches have one size."""

    SIZES = {
        "full": dict(nodes=1_000_000, width=256, hidden=256, seeds=(256, 1536), fan_out=(15, 10, 5)),
        "small": dict(nodes=1000, width=16, hidden=16, seeds=(4, 16), fan_out=(3, 2, 2)),
    }
    STEPS = {"full": 400, "small": 5}

    def __init__(self, size: str, device):
        super().__init__()
        self.plan = plan = self.SIZES[size]
        generator = torch.Generator(device).manual_seed(1)
        self.register_buffer("features", torch.randn(plan["nodes"], plan["width"], generator=generator, device=device))
        widths = [plan["width"], *[plan["hidden"]] * len(plan["fan_out"])]
        with torch.device(device):
            self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
            self.theirs = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
            self.head = nn.Linear(widths[-1], 50)

    def shape(self, rng: random.Random, warm_up: bool):
        return 8 if warm_up else rng.randint(*self.plan["seeds"])

    def loss(self, seeds, generator):
        device, nodes = self.features.device, self.plan["nodes"]

        def draw(high, *shape):
            return torch.randint(high, shape, generator=generator, device=device)

        layers = [draw(nodes, seeds)]
        for fan_out in self.plan["fan_out"]:
            # Each node keeps a random part of its neighbours, so that the number of rows is another one each time.
            drawn = draw(nodes, layers[-1].numel() * fan_out)
            layers.append(torch.cat((layers[-1], drawn[draw(4, drawn.numel()) > 0].unique())))
        x = self.features[layers[-1]]
        for number, layer in enumerate(reversed(layers[:-1])):
            rows, fan_out = layer.numel(), list(reversed(self.plan["fan_out"]))[number]
            sources = draw(x.shape[0], rows * fan_out)
            mixed = x[sources].view(rows, fan_out, -1).mean(1)
            x = F.relu(self.own[number](x[:rows]) + self.theirs[number](mixed))
        return F.cross_entropy(self.head(x), draw(50, seeds))
