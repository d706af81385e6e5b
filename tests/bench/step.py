"""Time and memory of one training step: plain PyTorch, PyTorch's checkpointing, hires at three budgets.

    python tests/bench/step.py                                   everything; an hour or two on two cores
    python tests/bench/step.py --models unet --sizes 1260x2048 --repeats 3

Every measurement is a fresh process that makes four steps (forward, loss, backward, SGD). Time: the median of
the last three, so that capture, planning and first touches of memory are left out; the first step's is in the
JSON. Memory: the most that the process held (VmHWM), less what it held before its first step, when library,
model and image were there already. In each round every method is run once, one after the other, so that a
slow minute of the machine hits all of them; the table shows medians over the rounds, relative to plain.

hires at 50 % may hold, in all, what it held before the first step and half of the memory that plain took.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from process import GIB, ROOT, machine, restart_peak, status  # noqa: E402

METHODS = ("plain", "checkpoint", "hires-100", "hires-50", "hires-25")
STEPS = 4
DEFAULT_OUT = Path(__file__).parent / "results" / "step.json"


# ---- one measurement, in a process of its own

def resnet18() -> tuple[Any, Any]:
    """ResNet-18 with frozen BatchNorm, as when fine-tuned on one image at a time."""
    import torch
    from torchvision.models import resnet18

    torch.manual_seed(0)
    return resnet18(num_classes=29).eval(), torch.tensor([7])


def unet() -> tuple[Any, Any]:
    """The U-Net of the relief example, in training mode; its target is made with the image."""
    import torch

    from hires.models import build

    args = tomllib.loads((ROOT / "examples/relief/quick.toml").read_text())["model"]["args"]
    torch.manual_seed(0)
    return build("hires:unet", **args).train(), None


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {"resnet18": resnet18, "unet": unet}


def checkpointed(model: Any) -> Callable[[Any], Any]:
    """The model's forward with torch.utils.checkpoint around each of its blocks."""
    from functools import partial

    from torch import nn
    from torch.utils.checkpoint import checkpoint
    from torchvision.models import ResNet

    if isinstance(model, ResNet):
        blocks = [nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool), *model.layer1,
                  *model.layer2, *model.layer3, *model.layer4]
        head = nn.Sequential(model.avgpool, nn.Flatten(1), model.fc)

        def forward(x: Any) -> Any:
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return head(x)
        return forward
    for block in [*model.down, *model.merge]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def measure(name: str, height: int, width: int, method: str, memory: int) -> dict[str, Any]:
    """One process's figures; `memory`: bytes that plain took, for hires."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model, target = MODELS[name]()
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(1, 3, height, width, generator=generator)
    if target is None:
        target = torch.randint(0, 3, (1, height, width), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    streamed = method.startswith("hires")
    if streamed:
        from hires.stream import stream     # loaded now: part of what is held before
    restart_peak()
    held = status("VmRSS")
    plan = None
    if streamed:
        budget = held + memory * int(method.removeprefix("hires-")) // 100
        net = stream(model, loss=F.cross_entropy, budget=budget)
        forward: Callable[[], Any] = lambda: net(image, target)     # noqa: E731
        plan = str(net.plan(image, target))
    else:
        run = checkpointed(model) if method == "checkpoint" else model
        forward = lambda: F.cross_entropy(run(image), target)       # noqa: E731
    seconds = []
    for _ in range(STEPS):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        optimizer.step()
        del loss        # its graph would live into the next step
        seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds[1:]), "first_seconds": seconds[0], "held": held,
            "peak": status("VmHWM"), "memory": status("VmHWM") - held, "plan": plan}


# ---- all of them

def child(name: str, height: int, width: int, method: str, memory: int, threads: int) -> dict[str, Any]:
    """Run `measure` in a fresh process."""
    job = json.dumps([name, height, width, method, memory])
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, __file__, "--measure", job], capture_output=True, text=True,
                          env=env)
    if done.returncode:
        killed = "killed, probably out of memory" if done.returncode == -9 else ""
        return {"failed": killed or (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def size(text: str) -> tuple[int, int]:
    """"1260x2048" or "2048" -> (height, width)."""
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def table(results: list[dict[str, Any]]) -> str:
    """Ratios to plain; absolute figures of plain."""
    lines = ["| model, size | method | time | memory | s | GiB |", "|---|---|---|---|---|---|"]
    for case in results:
        runs = case["runs"]
        middle = {m: {k: statistics.median(r[k] for r in rs) for k in ("seconds", "memory")}
                  for m, rs in runs.items() if rs and not any("failed" in r for r in rs)}
        plain = middle.get("plain")
        for method, rs in runs.items():
            what = f"| {case['model']} {case['height']}×{case['width']} | {method} |"
            got = middle.get(method)
            if got is None:
                said = next((r["failed"] for r in rs if "failed" in r), "not run")
                lines.append(f"{what} failed: {said} | | | |")
                continue
            cells = [f"{got[k] / plain[k]:.2f}" if plain else "–" for k in ("seconds", "memory")]
            cells += [f"{got['seconds']:.2f}", f"{got['memory'] / GIB:.2f}"]
            lines.append(f"{what} {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sizes", default="1260x2048,2048,4096", help="HEIGHTxWIDTH or SIDE, by commas")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*json.loads(args.measure))))
        return
    methods = args.methods.split(",")
    if unknown := set(methods) - set(METHODS):
        parser.error(f"--methods: no {', '.join(sorted(unknown))}; there is: {', '.join(METHODS)}")
    if "plain" not in methods:
        parser.error("--methods: needs plain, which all others are compared with")
    methods.sort(key=METHODS.index)     # plain first: budgets are fractions of what it took
    results: list[dict[str, Any]] = []
    report = {"machine": machine(args.threads), "steps": STEPS, "results": results}
    for name in args.models.split(","):
        for height, width in map(size, args.sizes.split(",")):
            runs: dict[str, list[dict[str, Any]]] = {m: [] for m in methods}
            results.append({"model": name, "height": height, "width": width, "runs": runs})
            for turn in range(args.repeats):
                for method in methods:
                    known = [r["memory"] for r in runs["plain"] if "memory" in r]
                    if method.startswith("hires") and not known:
                        runs[method].append({"failed": "plain gave no memory to take a part of"})
                        continue
                    # The first round's figure in all rounds: one budget, one plan.
                    got = child(name, height, width, method, known[0] if known else 0, args.threads)
                    runs[method].append(got)
                    said = got.get("failed") or f"{got['seconds']:.2f} s, {got['memory'] / GIB:.2f} GiB"
                    print(f"{name} {height}x{width} {turn + 1}/{args.repeats} {method}: {said}",
                          file=sys.stderr, flush=True)
                args.out.parent.mkdir(parents=True, exist_ok=True)
                part = args.out.with_name(args.out.name + ".part")
                part.write_text(json.dumps(report, indent=1))
                os.replace(part, args.out)
    print(table(results))


if __name__ == "__main__":
    main()
