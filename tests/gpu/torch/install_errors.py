"""install() where it cannot be: each a clear error, and PyTorch as it was."""

import os
import subprocess
import sys

from common import finish, must, refused

CASES = {}


def case(work):
    CASES[work.__name__] = work
    return work


@case
def after_cuda():
    import forebay
    import torch

    x = torch.ones(1000, device="cuda")
    refused(forebay.torch.InstallError, forebay.torch.install, "already", "first")
    must(torch.cuda.get_allocator_backend() == "native", "PyTorch is on its own allocator")
    must(float(x.sum()) == 1000 and torch.cuda.memory_allocated() > 0, "and goes on")


@case
def twice():
    import forebay
    import torch

    first = forebay.torch.install()
    refused(forebay.torch.InstallError, forebay.torch.install, "once", first.mode)
    must(float(torch.ones(1000, device="cuda").sum()) == 1000, "the first one holds")
    refused(forebay.torch.InstallError, forebay.torch.install, "once")
    must(forebay.torch.installation() is first, "installation() tells which")


@case
def old_version():
    import forebay
    import torch

    true, torch.__version__ = torch.__version__, "2.8.0"
    refused(forebay.torch.InstallError, forebay.torch.install, "2.8.0", "supports")
    torch.__version__ = true
    must(torch.cuda.get_allocator_backend() == "native", "PyTorch is on its own allocator")
    torch.ones(1, device="cuda")


@case
def forked_child():
    import forebay
    import torch

    torch.ones(1, device="cuda")
    child = os.fork()
    if child == 0:
        refused(forebay.torch.InstallError, forebay.torch.install, "fork", "spawn")
        os._exit(0)
    must(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child was told")
    must(float(torch.ones(1000, device="cuda").sum()) == 1000, "the parent goes on")


@case
def forked_after_install():
    import forebay
    import torch

    forebay.torch.install()
    torch.ones(1, device="cuda")
    child = os.fork()
    if child == 0:
        refused(forebay.torch.InstallError, forebay.torch.install, "fork")
        os._exit(0)
    must(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child was told")
    must(float(torch.ones(1000, device="cuda").sum()) == 1000, "the parent goes on")


@case
def wrong_mode():
    import forebay
    import torch

    refused(ValueError, lambda: forebay.torch.install("fast"), "fast", "adapter")
    must(torch.cuda.get_allocator_backend() == "native", "PyTorch is on its own allocator")


@case
def another_allocator():
    import forebay
    import torch

    own = torch.cuda.memory.CUDAPluggableAllocator(forebay.library_path, "forebay_torch_malloc", "forebay_torch_free")
    torch.cuda.memory.change_current_allocator(own)
    refused(forebay.torch.InstallError, forebay.torch.install, "pluggable", "change_current_allocator")


@case
def no_compiler():
    import forebay
    import torch

    forebay.torch._build.prebuilt = lambda version: None
    os.environ["CXX"] = "no-such-compiler"
    os.environ["XDG_CACHE_HOME"] = "/tmp/forebay-no-cache"
    refused(forebay.torch.InstallError, lambda: forebay.torch.install("adapter"), "no-such-compiler")
    must(torch.cuda.get_allocator_backend() == "native", "PyTorch is on its own allocator")
    done = forebay.torch.install("auto")
    must(done.mode == "base" and "no-such-compiler" in done.reason, f"auto takes base mode and says why: {done.reason}")
    must(float(torch.ones(1000, device="cuda").sum()) == 1000, "which works")


@case
def exit_with_live_tensors():
    import forebay
    import torch

    forebay.torch.install()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sys.kept = [torch.ones(1 << 20, device="cuda")]
    sys.kept.append(sys.kept)
    sys.kept.append(torch.ones(1 << 20, device="cuda"))
    must(True, "exiting with live tensors")


def main():
    if len(sys.argv) > 1:
        CASES[sys.argv[1]]()
        return
    environment = {key: value for key, value in os.environ.items() if key != "FOREBAY_TORCH_MODE"}
    failed = []
    for name in CASES:
        print(f" {name}", flush=True)
        done = subprocess.run(
            [sys.executable, os.path.abspath(__file__), name], env=environment, stderr=subprocess.PIPE, text=True
        )
        if done.returncode != 0 or "terminate called" in done.stderr or "Traceback" in done.stderr:
            print(done.stderr)
            failed.append(name)
    must(not failed, f"{len(CASES) - len(failed)} of {len(CASES)} cases{', failed: ' + ', '.join(failed) if failed else ''}")
    finish()


if __name__ == "__main__":
    main()
