"""AMP, checkpointing, side streams with record_stream and a DataLoader with pinned memory: losses as native."""

import sys

from common import close, finish, install, must, native, tell

torch = install()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = torch.nn.ModuleList(torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(4))
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x).relu()
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(lambda y, block=block: y + block(y).relu(), x, use_reentrant=False)
        return self.head(x.mean((2, 3)))


def main():
    import torch.utils.checkpoint  # noqa: F401  (not imported with torch)

    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    loader = torch.utils.data.DataLoader(Data(), batch_size=32, pin_memory=True, num_workers=2)
    copies = torch.cuda.Stream()
    losses = []
    for _ in range(3):
        for images, labels in loader:
            if not images.is_pinned():
                must(False, "batches are pinned")
            with torch.cuda.stream(copies):
                images = images.cuda(non_blocking=True)
                labels = labels.cuda(non_blocking=True)
            torch.cuda.current_stream().wait_stream(copies)
            # Made on the side stream, used on this one, and freed before that work is done.
            images.record_stream(torch.cuda.current_stream())
            labels.record_stream(torch.cuda.current_stream())
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            del images, labels
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    figures = main()
    if "--native" in sys.argv:
        tell(figures)
        sys.exit(0)
    must(close(figures, native(), 2e-3), f"{len(figures)} losses as native: {figures[0]:.4f} -> {figures[-1]:.4f}")
    finish()
