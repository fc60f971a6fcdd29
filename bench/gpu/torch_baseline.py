"""PyTorch on the models of bench/gpu/run.sh, eager and compiled, with its fused attention.

  torch_baseline.py MODEL PRECISION "FAMILY V D L H K F T B M"   measures PyTorch
  torch_baseline.py --report METRICS BY MODEL PRECISION "..."    prints a run of weft's in the same form

B: sequences of a microbatch, M: microbatches of a step. The same shapes, batch, accumulation,
clipping and AdamW; random tokens; the median of the steps after the fifth.
Exit code 3: a row says FAILED.
"""
import gc
import json
import statistics
import sys
import time

PEAKS = {"fp32": 67e12, "bf16": 989.5e12, "fp8": 989.5e12}  # fp8: shares of bf16's
WARM_UP = 5
STEPS = 15


class Shape:
    def __init__(self, text):
        family, *numbers = text.split()
        self.llama = family == "llama"
        (self.vocabulary, self.width, self.blocks, self.heads, self.kv_heads, self.ffn, self.length,
         self.batch, self.microbatches) = map(int, numbers)
        self.head_dim = self.width // self.heads

    def step_tokens(self):
        return self.batch * self.microbatches * self.length

    def flops_per_token(self):
        kv_width = self.kv_heads * self.head_dim
        attention = 2 * self.width * self.width + 2 * self.width * kv_width
        feed_forward = (3 if self.llama else 2) * self.width * self.ffn
        matrices = self.blocks * (attention + feed_forward) + self.vocabulary * self.width
        return 6 * matrices + 12 * self.blocks * self.width * self.length


def report(model, precision, by, shape, step_seconds):
    rate = shape.step_tokens() / statistics.median(step_seconds)
    mfu = rate * shape.flops_per_token() / PEAKS[precision]
    print(f"{model:12} {precision:6} {by:8} {rate:12.0f} {100 * mfu:7.1f}% {shape.step_tokens():14}", flush=True)


def report_weft(metrics, by, model, precision, shape):
    steps = [json.loads(line) for line in open(metrics)]
    seconds = [step["step_s"] for step in steps if step.get("step", 0) > WARM_UP and "step_s" in step]
    report(model, precision, by, shape, seconds)


def make_model(torch, shape):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            norm = nn.RMSNorm if shape.llama else nn.LayerNorm
            bias = not shape.llama
            kv_width = shape.kv_heads * shape.head_dim
            self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
            self.qkv = nn.Linear(shape.width, shape.width + 2 * kv_width, bias=bias)
            self.out = nn.Linear(shape.width, shape.width, bias=bias)
            self.up = nn.Linear(shape.width, shape.ffn * (2 if shape.llama else 1), bias=bias)
            self.down = nn.Linear(shape.ffn, shape.width, bias=bias)

        def turn(self, x):
            half = shape.head_dim // 2
            angles = torch.outer(torch.arange(shape.length, device=x.device).float(),
                                 500000.0 ** (-torch.arange(half, device=x.device).float() / half))
            cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            first, second = x[..., :half], x[..., half:]
            return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

        def forward(self, x):
            batch, length, width = x.shape
            kv_width = shape.kv_heads * shape.head_dim
            q, k, v = self.qkv(self.norm1(x)).split([width, kv_width, kv_width], -1)
            split = lambda t: t.view(batch, length, -1, shape.head_dim).transpose(1, 2)
            q, k, v = split(q), split(k), split(v)
            if shape.llama:
                q, k = self.turn(q), self.turn(k)
            shared = shape.heads != shape.kv_heads
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                        **({"enable_gqa": True} if shared else {}))
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            hidden = self.up(self.norm2(x))
            if shape.llama:
                gate, up = hidden.chunk(2, -1)
                hidden = functional.silu(gate) * up
            else:
                hidden = functional.gelu(hidden, approximate="tanh")
            return x + self.down(hidden)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(shape.vocabulary, shape.width)
            self.positions = None if shape.llama else nn.Embedding(shape.length, shape.width)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.blocks))
            self.norm = nn.RMSNorm(shape.width) if shape.llama else nn.LayerNorm(shape.width)
            self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
            self.head.weight = self.tokens.weight
            self.apply(lambda m: nn.init.normal_(m.weight, std=0.02)
                       if isinstance(m, (nn.Linear, nn.Embedding)) else None)

        def forward(self, ids, targets):
            x = self.tokens(ids)
            if self.positions is not None:
                x = x + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.view(-1, logits.size(-1)).float(),
                                            targets.view(-1))

    return Model().cuda()


def measure(torch, model, precision, shape, compiled):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")
    net = make_model(torch, shape)
    run = torch.compile(net) if compiled else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(shape.vocabulary, (shape.batch, shape.length), device="cuda")
    seconds = []
    for _ in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(shape.microbatches):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = run(ids, ids.roll(-1, 1)) / shape.microbatches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    report(model, precision, "compile" if compiled else "eager", shape, seconds[WARM_UP:])


def main():
    if sys.argv[1] == "--report":
        _, _, metrics, by, model, precision, shape = sys.argv
        report_weft(metrics, by, model, precision, Shape(shape))
        return
    _, model, precision, text = sys.argv
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("it sees no device")
    except ImportError as error:
        print(f"{model:12} {precision:6} torch    not measured: {error}")
        return
    failed = False
    for compiled in (False, True):
        try:
            measure(torch, model, precision, Shape(text), compiled)
        except Exception as error:  # one that does not fit must not end the others
            failed = True
            print(f"{model:12} {precision:6} {'compile' if compiled else 'eager':8} FAILED: "
                  f"{str(error).splitlines()[0][:90]}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    sys.exit(3 if failed else 0)


if __name__ == "__main__":
    main()
