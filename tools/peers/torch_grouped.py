#!/usr/bin/env python3
"""A routed layer by torch._grouped_mm in bf16, timed as bench_matrix times ours.

Usage: torch_grouped.py [--device cuda|cpu] [--tokens 1,8] [--limit SECONDS] [--gbs X] [--tflops X]
                        [--memory-mib N] [--batch SECONDS]  < SHAPES
SHAPES: lines "name hidden intermediate experts experts_a_token", as `bench_matrix --shapes` prints.

Rows have the columns of bench_matrix. A layer is the whole of it: pairs sorted by expert and rows
gathered on the device, the product with gate and up, SiLU, the product with down, and the weighted
sum over a token's experts. Layers take turns over 256 MB and more, routing is uniform and drawn
afresh for each, timed are replays of a graph of one turn ("launches" where it cannot be captured),
a cell is the median of seven batches, and the norm of its output has to be finite and above 0.

Exit status: 0; 1 an output is wrong; 2 usage; 77 no torch, no torch._grouped_mm or no GPU.
"""
import argparse
import math
import statistics
import sys
import time

ROTATED_BYTES = 256 << 20
LAUNCHES_MAX = 32
BATCHES = 7


def absent(why):
    print(why)
    sys.exit(77)


def load_torch(device):
    try:
        import torch
    except ImportError as error:
        absent(f"no torch: {error}")
    if not hasattr(torch, "_grouped_mm"):
        absent(f"torch {torch.__version__} has no _grouped_mm")
    if device == "cuda" and not torch.cuda.is_available():
        absent(f"torch {torch.__version__} finds no GPU")
    return torch


class Layers:
    """Layers of one model with random weights, and a routing for each launch."""

    def __init__(self, torch, shape, n_tokens, args):
        self.torch, self.args, self.n_tokens = torch, args, n_tokens
        self.name, self.hidden, self.inner, self.n_experts, self.top_k = shape
        self.expert_bytes = 2 * 3 * self.hidden * self.inner
        layer_bytes = self.n_experts * self.expert_bytes
        turn = ROTATED_BYTES // (self.top_k * self.expert_bytes) + 1
        room = (args.memory_mib << 20) // layer_bytes
        if room == 0:
            raise MemoryError(f"a layer has {layer_bytes >> 20} MiB")
        self.n_layers = max(1, min(turn, LAUNCHES_MAX, room))
        self.gate_up = [self.matrix(2 * self.inner, self.hidden) for _ in range(self.n_layers)]
        self.down = [self.matrix(self.hidden, self.inner) for _ in range(self.n_layers)]
        self.draw(n_tokens)

    def matrix(self, rows, cols):
        values = self.torch.empty(
            self.n_experts, rows, cols, dtype=self.torch.bfloat16, device=self.args.device
        )
        return values.normal_(0, 1 / math.sqrt(cols))

    def draw(self, n_tokens):
        torch, device = self.torch, self.args.device
        self.n_tokens = n_tokens
        self.x = torch.randn(n_tokens, self.hidden, device=device).to(torch.bfloat16)
        self.ids = [
            torch.rand(n_tokens, self.n_experts, device=device).topk(self.top_k).indices.contiguous()
            for _ in range(LAUNCHES_MAX)
        ]
        self.weights = 0.1 + 0.2 * torch.rand(n_tokens, self.top_k, device=device)
        self.distinct = statistics.mean(int(ids.unique().numel()) for ids in self.ids)

    def launch(self, i):
        """Launch i of a batch: everything on the device, no size known to the host."""
        torch = self.torch
        layer, flat = i % self.n_layers, self.ids[i % LAUNCHES_MAX].flatten()
        order = torch.argsort(flat, stable=True)
        counts = torch.zeros(self.n_experts, dtype=torch.int64, device=flat.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        ends = counts.cumsum(0).to(torch.int32)
        rows = self.x.index_select(0, order // self.top_k)
        product = torch._grouped_mm(rows, self.gate_up[layer].transpose(1, 2), offs=ends)
        gate, up = product.split(self.inner, dim=1)
        act = torch.nn.functional.silu(gate) * up
        out = torch._grouped_mm(act, self.down[layer].transpose(1, 2), offs=ends)
        of_pair = torch.empty_like(out)
        of_pair[order] = out
        of_pair = of_pair.view(self.n_tokens, self.top_k, self.hidden)
        self.y = (of_pair.float() * self.weights.unsqueeze(2)).sum(1)


def synchronize(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


def capture(torch, layers, n, device):
    """A graph of n launches, or None where it cannot be captured."""
    if device != "cuda":
        return None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                layers.launch(i)
        return graph
    except RuntimeError as error:
        print(f"not captured: {str(error).splitlines()[0]}")
        torch.cuda.synchronize()
        return None


def seconds_of(torch, layers, graph, n, n_times, device):
    """Seconds of one launch in a batch of n_times times n."""
    started = time.perf_counter()
    for _ in range(n_times):
        if graph is not None:
            graph.replay()
        else:
            for i in range(n):
                layers.launch(i)
    synchronize(torch, device)
    return (time.perf_counter() - started) / n_times / n


def time_cell(torch, layers, args):
    """A row; whether its output is right."""
    for _ in range(2):
        seconds = seconds_of(torch, layers, None, 2, 1, args.device)
    wanted = args.batch / seconds
    n = int(min(max(wanted, min(layers.n_layers, max(25 * wanted, 2))), LAUNCHES_MAX))
    graph = capture(torch, layers, n, args.device)
    n_times = int(min(max(wanted / n, 1), 4096))
    batches = [seconds_of(torch, layers, graph, n, n_times, args.device) for _ in range(BATCHES + 1)]
    seconds = statistics.median(batches[1:])
    norm = float(layers.y.double().norm()) / math.sqrt(layers.y.numel())
    good = math.isfinite(norm) and norm > 0
    active = layers.distinct * layers.expert_bytes
    flop = 6.0 * layers.hidden * layers.inner * layers.top_k * layers.n_tokens
    floor = max(
        active / (args.gbs * 1e9) if args.gbs else 0, flop / (args.tflops * 1e12) if args.tflops else 0
    )
    print(
        f"{layers.name:<20} {'bf16':<9} {'torch_grouped_mm':<14} {layers.n_tokens:>6}"
        f" {layers.distinct:8.1f} {seconds * 1e6:11.1f} {active / seconds * 1e-9:9.1f}"
        f" {flop / seconds * 1e-12:9.2f} {floor / seconds:7.3f}"
        f" {'graph' if graph is not None else 'launches'}{'' if good else '  WRONG OUTPUT'}",
        flush=True,
    )
    return good


def options():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tokens", default="1,8,64,512,4096")
    for name, value in (("limit", 1e9), ("gbs", 0.0), ("tflops", 0.0), ("batch", 0.02)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--memory-mib", type=int, default=48 << 10)
    return parser.parse_args()


def read_shapes():
    for line in sys.stdin:
        name, *numbers = line.split()
        yield (name, *map(int, numbers))


def run(torch, args):
    started, right = time.perf_counter(), True
    out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    for shape in read_shapes():
        layers = None
        for n_tokens in map(int, args.tokens.split(",")):
            if time.perf_counter() - started > args.limit:
                print(f"left out: {shape[0]} bf16 {n_tokens} tokens and more: no time", flush=True)
                break
            try:
                if layers is None:
                    layers = Layers(torch, shape, n_tokens, args)
                else:
                    layers.draw(n_tokens)
                right = time_cell(torch, layers, args) and right
            except (MemoryError, out_of_memory) as error:
                print(f"left out: {shape[0]} bf16 {n_tokens} tokens: {str(error).splitlines()[0]}")
                break
        del layers
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return 0 if right else 1


def main():
    args = options()
    torch = load_torch(args.device)
    torch.manual_seed(1)
    print(f"torch {torch.__version__} on {args.device}")
    with torch.inference_mode():
        sys.exit(run(torch, args))


if __name__ == "__main__":
    main()
