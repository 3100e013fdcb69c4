"""torch.compile in each mode: the same losses as under PyTorch's own allocator. Arguments: the modes, by default all."""

import sys

from common import close, finish, install, must, native, tell

MODES = ("default", "reduce-overhead", "max-autotune")
wanted = [argument for argument in sys.argv[1:] if argument in MODES] or MODES
torch = install()
torch.set_float32_matmul_precision("highest")


def train(mode):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 10)
    ).cuda()
    compiled = torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator(device="cuda").manual_seed(1)
    losses = []
    for _ in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(64, 128, device="cuda", generator=generator)
        y = torch.randint(0, 10, (64,), device="cuda", generator=generator)
        loss = torch.nn.functional.cross_entropy(compiled(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Inference beside training: another path of the graph tree, and outputs that live across replays.
    with torch.no_grad():
        kept = []
        for step in range(6):
            torch.compiler.cudagraph_mark_step_begin()
            kept.append(compiled(torch.full((64, 128), float(step), device="cuda")).clone())
        losses += [output.double().mean().item() for output in kept]
    return losses


if "--native" in sys.argv:
    tell({mode: train(mode) for mode in wanted})
    sys.exit(0)
theirs = native(*wanted)
for mode in wanted:
    ours = train(mode)
    must(close(ours, theirs[mode], 1e-3), f"mode {mode}: {ours[0]:.4f} -> {ours[11]:.4f} as native")
if "reduce-overhead" in wanted:
    # Two functions in one tree, with a checkpoint of the pool between them; the slow asserts hold pools to their books.
    import torch._inductor.config as inductor

    inductor.triton.slow_path_cudagraph_asserts = True
    torch._dynamo.reset()

    @torch.compile(mode="reduce-overhead")
    def first(x):
        return x.sin() + 1, x.cos()

    @torch.compile(mode="reduce-overhead")
    def second(a, b, flip):
        return (a * b).relu() if flip else (a - b).exp()

    x = torch.randn(512, 512, device="cuda")
    for step in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        a, b = first(x)
        result = second(a, b, step % 3 == 0)
        expected = ((x.sin() + 1) * x.cos()).relu() if step % 3 == 0 else (x.sin() + 1 - x.cos()).exp()
        if not torch.allclose(result, expected, atol=1e-4):
            must(False, f"step {step} of the graph tree")
        del a, b, result
    must(True, "a graph tree with branches, checkpoints of its pool checked at each")
finish()
