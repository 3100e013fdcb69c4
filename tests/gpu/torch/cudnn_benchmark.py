"""cudnn.benchmark asks for the largest block that can be had; convolutions come out as under the native allocator."""

import sys

from common import close, finish, install, must, native, tell

torch = install()
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 5), torch.nn.ReLU(), torch.nn.Conv2d(32, 16, 3)).cuda()
figures = []
for side in (32, 48, 65):
    output = layers(torch.randn(8, 3, side, side, device="cuda"))
    output.square().mean().backward()
    figures += [output.double().abs().mean().item(), layers[0].weight.grad.double().abs().mean().item()]
if "--native" in sys.argv:
    tell(figures)
    sys.exit(0)
must(torch.backends.cudnn.is_available(), "cuDNN is there")
must(close(figures, native(), 1e-4), f"the same results: {figures[:2]}")
finish()
