"""A ResNet-18 training step on one 8192×8192 picture within 4 GiB of memory, all told.

    python tests/bench/big.py [--size 8192] [--budget 4GiB] [--steps 2] [--threads 2]

Prints the plan, the time of each step (the first with capture and planning) and the most memory that the
process has held; ends with 1 if that is more than the budget. The picture is 8-bit noise in memory (192 MiB);
plain PyTorch would take about 43 GiB.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from process import GIB, machine, status  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--budget", default="4GiB")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "big.json")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(args.threads)   # before torch loads

    import numpy as np
    import torch
    import torch.nn.functional as F
    from torchvision.models import resnet18

    import hires
    from hires.tiling.image import ArrayImage

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    noise = np.random.default_rng(0).integers(0, 256, (3, args.size, args.size), np.uint8)
    image = ArrayImage(noise, axes="cyx").astype("float32").normalize([128] * 3, [64] * 3)
    model = resnet18(num_classes=29).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    net = hires.stream(model, budget=args.budget)
    print(net.plan(image))
    seconds = []
    for step in range(args.steps):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(image), torch.tensor([7]))
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
        print(f"step {step + 1}: {seconds[-1]:.1f} s, {seconds[-1] / args.size**2 * 1e9:.0f} ns a pixel, "
              f"loss {loss.item():.4f}, peak so far {status('VmHWM') / GIB:.2f} GiB", flush=True)
    peak = status("VmHWM")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    part = args.out.with_name(args.out.name + ".part")
    part.write_text(json.dumps({"machine": machine(args.threads), "size": args.size, "budget": args.budget,
                                "seconds": seconds, "peak": peak}, indent=1))
    os.replace(part, args.out)
    budget = net.budget
    if peak > budget:
        sys.exit(f"the process held {peak / GIB:.2f} GiB, more than the budget of {budget / GIB:.2f} GiB")


if __name__ == "__main__":
    main()
