#!/usr/bin/env python3
"""GPT-2 training steps in PyTorch, for bench/train_peers.py to compare weft with. Torch 1.13 and 2.x.

A step is a forward pass, a backward pass, clipping of the gradient norm at 1 and AdamW, on one random
batch. bf16 is autocast over fp32 weights. Matrices start from N(0, 0.02), as GPT-2's do, and
denormal floats are flushed: embeddings of N(0, 1), torch's default, saturate the softmax, and
gradients that turn denormal would slow the peer down.

Prints "ready NAME" once the warm-up steps are done, then answers each line N of standard input with
the seconds of N steps, on one line.
"""
import argparse
import contextlib
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

HAS_FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each [B, H, T, E]
        if HAS_FUSED_ATTENTION:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
            mixed = torch.softmax(scores + mask, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, width, blocks, heads, tokens):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width),
                "attention": Attention(width, heads),
                "norm2": nn.LayerNorm(width),
                "up": nn.Linear(width, 4 * width),
                "down": nn.Linear(4 * width, width),
            }) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        hidden = torch.ones(tokens, tokens).triu(1).bool()
        self.register_buffer("mask", torch.zeros(tokens, tokens).masked_fill(hidden, -math.inf))
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids, targets, gelu):
        x = self.table(ids) + self.positions.weight
        for block in self.blocks:
            x = x + block["attention"](block["norm1"](x), self.mask)
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x)), approximate=gelu))
        logits = self.norm(x) @ self.table.weight.t()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the first answer")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--gelu", choices=("none", "tanh"), default="none",
                        help="none: the exact GELU, which is torch's faster one")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = Gpt2(options.vocabulary, options.width, options.blocks, options.width // 64,
                 options.seq_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    shape = (options.batch, options.seq_len)
    ids, targets = (torch.randint(options.vocabulary, shape) for _ in range(2))
    forward = torch.compile(model) if options.compile else model

    def step():
        start = time.perf_counter()
        narrow = options.dtype == "bf16"
        with torch.autocast("cpu", torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = forward(ids, targets, options.gelu)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(options.warmup):
        step()
    print("ready torch", torch.__version__, flush=True)
    for line in sys.stdin:
        print(*(f"{step():.4f}" for _ in range(int(line))), flush=True)


main()
