#!/usr/bin/python3
"""The independent witness: GPT-2 training in NumPy, double precision, one process.

Written from the papers and from the definitions in our headers, never from our C++:
  Radford et al. 2019 (GPT-2)                  pre-norm blocks, learned positions, tied head
  Ba et al., arXiv:1607.06450                  layer norm
  Hendrycks & Gimpel, arXiv:1606.08415         GELU, tanh form
  Loshchilov & Hutter, arXiv:1711.05101        AdamW; decay on matrices only
  Pascanu et al., arXiv:1211.5063              clipping by the global norm
  Salmon et al., SC'11                         Philox4x32-10
  worker/state/initial_weights.h, data/sampling.h    which initial weights, which samples

  gpt2_reference.py JOB.json OUT     trains; writes OUT.json (losses, norms, learning rates, names
                                     and dims of the tensors) and OUT.f64 (the gradients of step 1
                                     in that order, before clipping, little-endian doubles)
  gpt2_reference.py --check          finite differences against the backward pass; exit 1 if wrong

Needs only NumPy and xxhash (Debian: python3-numpy, python3-xxhash).
"""
import fnmatch
import json
import math
import sys

import numpy as np
import xxhash

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# ---- data order: data/sampling.h -----------------------------------------------------------------
def mix(z):
    z &= M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def permute(size, key, x):
    if size == 1:
        return 0
    h = 1
    while 4**h < size:
        h += 1
    mask = 2**h - 1
    while True:
        left, right = x >> h, x & mask
        for r in range(6):
            left, right = right, left ^ (mix(key + (r + 1) * GOLDEN + mix(right)) & mask)
        x = left << h | right
        if x < size:
            return x


def samples(job, step):
    """Inputs and targets [G, T] of a step (steps count from 1)."""
    T, G = job["seq_len"], job["global_batch_size"]
    windows = []
    for path in job["data"]:
        with open(path, "rb") as file:
            tokens = np.frombuffer(file.read(), dtype=np.uint8).astype(np.int64)
        windows += [tokens[k * T:k * T + T + 1] for k in range((len(tokens) - 1) // T)]
    batch = []
    for sample in range((step - 1) * G, step * G):
        epoch, index = divmod(sample, len(windows))
        key = mix(job["seed"] + (epoch + 1) * GOLDEN)
        batch.append(windows[permute(len(windows), key, index)])
    batch = np.stack(batch)
    return batch[:, :-1], batch[:, 1:]


# ---- initial weights: worker/state/initial_weights.h ---------------------------------------------------
def philox(counter, key):
    """Philox4x32-10 of arrays of u32 held in u64: four counters, two keys -> four words."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    k = [np.uint64(x) for x in key]
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def initial_normal(name, dims, std, seed):
    h = xxhash.xxh3_64(name.encode()).intdigest()
    key = ((seed ^ h) & 0xFFFFFFFF, ((seed ^ h) >> 32) & 0xFFFFFFFF)
    index = np.arange(int(np.prod(dims)), dtype=np.uint64)
    zero = np.zeros_like(index)
    words = philox((index & np.uint64(0xFFFFFFFF), index >> np.uint64(32), zero, zero), key)
    u1 = (words[0].astype(np.float64) + 0.5) / 2.0**32
    u2 = (words[1].astype(np.float64) + 0.5) / 2.0**32
    z = np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2)
    return (std * z).astype(np.float32).astype(np.float64).reshape(dims)


def initial_weights(job):
    """Every tensor by its name, in network order. Linear weights are [out, in]."""
    D, F, std = job["hidden_size"], job["ffn_size"], job["initializer_range"]
    residual = std / math.sqrt(2 * job["num_blocks"])
    weights = {}

    def normal(name, dims, scale):
        weights[name] = initial_normal(name, dims, scale, job["seed"])

    def linear(name, out, inputs, scale):
        normal(name + ".weight", (out, inputs), scale)
        weights[name + ".bias"] = np.zeros(out)

    def norm(name):
        weights[name + ".weight"] = np.ones(D)
        weights[name + ".bias"] = np.zeros(D)

    normal("embed.tokens.weight", (job["vocab_size"], D), std)
    normal("embed.positions.weight", (job["max_positions"], D), std)
    for i in range(job["num_blocks"]):
        block = f"blocks.{i}."
        norm(block + "norm1")
        for part in "qkv":
            linear(block + "attn." + part, D, D, std)
        linear(block + "attn.o", D, D, residual)
        norm(block + "norm2")
        linear(block + "mlp.up", F, D, std)
        linear(block + "mlp.down", D, F, residual)
    norm("final_norm")
    return weights


# ---- layers: forward returns (output, what backward needs) ----------------------------------------
class Tape:
    """Weights, and the gradients that the backward pass adds up."""

    def __init__(self, weights):
        self.weights = weights
        self.grads = {name: np.zeros_like(w) for name, w in weights.items()}

    def linear(self, name, x):                                           # [.., in] -> [.., out]
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def linear_back(self, name, dy, x):
        rows = dy.reshape(-1, dy.shape[-1])
        self.grads[name + ".weight"] += rows.T @ x.reshape(-1, x.shape[-1])
        self.grads[name + ".bias"] += rows.sum(axis=0)
        return dy @ self.weights[name + ".weight"]

    def norm(self, name, x, eps):
        mean = x.mean(axis=-1, keepdims=True)
        rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + eps)
        xhat = (x - mean) * rstd
        return xhat * self.weights[name + ".weight"] + self.weights[name + ".bias"], (xhat, rstd)

    def norm_back(self, name, dy, saved):
        xhat, rstd = saved
        axes = tuple(range(dy.ndim - 1))
        self.grads[name + ".weight"] += (dy * xhat).sum(axis=axes)
        self.grads[name + ".bias"] += dy.sum(axis=axes)
        g = dy * self.weights[name + ".weight"]
        return rstd * (g - g.mean(axis=-1, keepdims=True)
                       - xhat * (g * xhat).mean(axis=-1, keepdims=True))


GELU_C = math.sqrt(2 / math.pi)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(GELU_C * (x + 0.044715 * x**3)))


def gelu_back(dy, x):
    t = np.tanh(GELU_C * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * GELU_C * (1 + 3 * 0.044715 * x**2))


def split_heads(x, H):                                                   # [B,T,D] -> [B,H,T,E]
    B, T, D = x.shape
    return x.reshape(B, T, H, D // H).transpose(0, 2, 1, 3)


def join_heads(x):
    B, H, T, E = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * E)


def document_starts(ids, job):
    """Of each token [B,T] the position where its document starts; 0 if documents do not matter."""
    marks, starts = job.get("documents", {}), np.zeros(ids.shape, dtype=int)
    if not marks.get("reset_attention_mask"):
        return starts
    for b, sample in enumerate(ids):
        for t in range(1, len(sample)):
            border = sample[t] == marks["bos_token_id"] or sample[t - 1] == marks["eos_token_id"]
            starts[b, t] = t if border else starts[b, t - 1]
    return starts


def visible(ids, job):                                                   # [B,1,T,T]
    """Which keys (last axis) each query sees: from its document's start to itself."""
    at = np.arange(ids.shape[1])
    return ((at <= at[:, None]) & (at >= document_starts(ids, job)[..., None]))[:, None]


def block_forward(tape, i, x, job):
    H, eps, b = job["num_heads"], job["norm_eps"], f"blocks.{i}."
    E = x.shape[2] // H
    h1, norm1 = tape.norm(b + "norm1", x, eps)
    q, k, v = (split_heads(tape.linear(b + "attn." + part, h1), H) for part in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(E)
    scores = np.where(job["visible"], scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    a = join_heads(p @ v)
    x1 = x + tape.linear(b + "attn.o", a)
    h2, norm2 = tape.norm(b + "norm2", x1, eps)
    u = tape.linear(b + "mlp.up", h2)
    g = gelu(u)
    return x1 + tape.linear(b + "mlp.down", g), (h1, norm1, q, k, v, p, a, h2, norm2, u, g)


def block_backward(tape, i, dx2, saved, job):
    H, b = job["num_heads"], f"blocks.{i}."
    h1, norm1, q, k, v, p, a, h2, norm2, u, g = saved
    du = gelu_back(tape.linear_back(b + "mlp.down", dx2, g), u)
    dx1 = dx2 + tape.norm_back(b + "norm2", tape.linear_back(b + "mlp.up", du, h2), norm2)
    do = split_heads(tape.linear_back(b + "attn.o", dx1, a), H)
    dv = p.transpose(0, 1, 3, 2) @ do
    dp = do @ v.transpose(0, 1, 3, 2)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / math.sqrt(q.shape[-1])
    dq, dk = ds @ k, ds.transpose(0, 1, 3, 2) @ q
    dh1 = sum(tape.linear_back(b + "attn." + part, join_heads(d), h1)
              for part, d in (("q", dq), ("k", dk), ("v", dv)))
    return dx1 + tape.norm_back(b + "norm1", dh1, norm1)


def loss_and_gradients(weights, ids, targets, job):
    """Mean cross-entropy over all tokens, and its gradient by tensor."""
    tape = Tape(weights)
    L, job = job["num_blocks"], {**job, "visible": visible(ids, job)}
    table = weights["embed.tokens.weight"]
    at = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    if job.get("documents", {}).get("reset_position_ids"):
        at = at - document_starts(ids, job)
    x = table[ids] + weights["embed.positions.weight"][at]
    saved = []
    for i in range(L):
        x, kept = block_forward(tape, i, x, job)
        saved.append(kept)
    f, final = tape.norm("final_norm", x, job["norm_eps"])
    logits = f @ table.T                                                 # [B,T,V]
    top = logits.max(axis=-1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(axis=-1, keepdims=True)
    at_target = np.take_along_axis(logits, targets[..., None], axis=-1)
    loss = float((np.log(total) + top - at_target).mean())

    dlogits = e / total
    np.put_along_axis(dlogits, targets[..., None],
                      np.take_along_axis(dlogits, targets[..., None], axis=-1) - 1, axis=-1)
    dlogits /= targets.size
    tape.grads["embed.tokens.weight"] += (
        dlogits.reshape(-1, dlogits.shape[-1]).T @ f.reshape(-1, f.shape[-1]))
    dx = tape.norm_back("final_norm", dlogits @ table, final)
    for i in reversed(range(L)):
        dx = block_backward(tape, i, dx, saved[i], job)
    np.add.at(tape.grads["embed.tokens.weight"], ids.reshape(-1), dx.reshape(-1, dx.shape[-1]))
    np.add.at(tape.grads["embed.positions.weight"], at.reshape(-1), dx.reshape(-1, dx.shape[-1]))
    return loss, tape.grads


# ---- optimizer ------------------------------------------------------------------------------------
def learning_rate(job, step):
    lr, schedule = job["optimizer"]["lr"], job["lr_scheduler"]
    warmup, least = schedule["warmup_steps"], schedule["min_lr"]
    if step <= warmup:
        return lr * step / warmup
    if schedule["type"] == "constant":
        return lr
    end = schedule["decay_steps"] or job["steps"]
    t = min((step - warmup) / max(end - warmup, 1), 1.0)
    if schedule["type"] == "linear":
        return lr + t * (least - lr)
    return least + (lr - least) * (1 + math.cos(math.pi * t)) / 2


def weight_decay(name, weight, optimizer):
    for group in optimizer["param_groups"]:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in group["params"]):
            return group["weight_decay"]
    return optimizer["weight_decay"] if weight.ndim == 2 else 0.0


# arXiv:2110.02861: of each decade equal parts of [0.1, 1], fewer the lower; both ends of the signed
# numbers are kept.
def dynamic_numbers(parts):
    ends = (np.linspace(0.1, 1, (parts >> e) + 1) for e in range(7))
    return np.concatenate([(e[1:] + e[:-1]) / 2 * 10.0**-i for i, e in enumerate(ends)])


UNSIGNED = np.sort(np.concatenate([[0, 1], dynamic_numbers(128)]))
SIGNED = np.sort(np.concatenate([[0, 1, -1], dynamic_numbers(64), -dynamic_numbers(64)[
    dynamic_numbers(64) < dynamic_numbers(64).max()]]))


def in_eight_bits(x, numbers):
    assert numbers.size == 256
    flat = np.concatenate([x.reshape(-1), np.zeros(-x.size % 256)]).reshape(-1, 256)
    scale = np.abs(flat).max(axis=1, keepdims=True)
    share = np.divide(flat, scale, out=np.zeros_like(flat), where=scale > 0)
    code = np.searchsorted((numbers[1:] + numbers[:-1]) / 2, share)
    if numbers[0] == 0:  # what divides by its root stays above zero
        code = np.where(share > 0, np.maximum(code, 1), code)
    return (numbers[code] * scale).reshape(-1)[:x.size].reshape(x.shape)


def root_mean_square(x):
    return math.sqrt((x**2).mean())


def adafactor(weight, grad, moments, lr, decay, step, optimizer):
    """arXiv:1804.04235, algorithms 4 and 5, without a first moment, as transformers' Adafactor."""
    beta = 1 - step ** optimizer["decay_rate"]
    square = grad**2 + 1e-30
    if weight.ndim == 2:
        rows, cols = moments or (np.zeros(square.shape[0]), np.zeros(square.shape[1]))
        moments = (beta * rows + (1 - beta) * square.mean(axis=1),
                   beta * cols + (1 - beta) * square.mean(axis=0))
        second = np.outer(*moments) / moments[0].mean()
    else:
        moments = second = beta * (0.0 if moments is None else moments) + (1 - beta) * square
    direction = grad / np.sqrt(second)
    direction = direction / max(1.0, root_mean_square(direction) / optimizer["clip_threshold"])
    if optimizer["scale_parameter"]:
        lr = lr * max(1e-3, root_mean_square(weight))
    return weight - lr * (direction + decay * weight), moments


def update(weights, grads, moments, lr, scale, step, optimizer):
    for name, weight in weights.items():
        grad = scale * grads[name]
        decay = weight_decay(name, weight, optimizer)
        if optimizer["name"] == "sgd":  # as torch.optim.SGD
            grad = grad + decay * weight
            if optimizer["momentum"] > 0:
                mu = optimizer["momentum"]
                m = (grad if step == 1 else
                     mu * moments[name] + (1 - optimizer["dampening"]) * grad)
                moments[name] = m
                grad = grad + mu * m if optimizer["nesterov"] else m
            weights[name] = weight - lr * grad
            continue
        if optimizer["name"] == "adagrad":  # JMLR 12 (2011), as torch.optim.Adagrad
            grad = grad + decay * weight
            moments[name] = moments.get(name, 0.0) + grad**2
            weights[name] = weight - lr * grad / (np.sqrt(moments[name]) + optimizer["eps"])
            continue
        if optimizer["name"] == "adafactor":
            weights[name], moments[name] = adafactor(
                weight, grad, moments.get(name), lr, decay, step, optimizer)
            continue
        b1, b2 = optimizer["beta1"], optimizer["beta2"]
        if optimizer["name"] == "lion":  # arXiv:2302.06675, program 1
            m = moments.get(name, 0.0)
            direction = np.sign(b1 * m + (1 - b1) * grad)
            moments[name] = b2 * m + (1 - b2) * grad
            weights[name] = weight - lr * (direction + decay * weight)
            continue
        m, v = moments.get(name, (0.0, 0.0))
        m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad**2
        if optimizer["name"] == "adamw_8bit":
            moments[name] = (in_eight_bits(m, SIGNED), in_eight_bits(v, UNSIGNED))
        else:
            moments[name] = (m, v)
        direction = (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + optimizer["eps"])
        weights[name] = weight - lr * decay * weight - lr * direction


def train(job, make_weights, differentiate):
    """`make_weights` and `differentiate` are a family's initial_weights and loss_and_gradients."""
    weights, moments = make_weights(job), {}
    result = {"losses": [], "grad_norms": [], "learning_rates": []}
    first = None
    for step in range(1, job["steps"] + 1):
        ids, targets = samples(job, step)
        loss, grads = differentiate(weights, ids, targets, job)
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads.values()))
        first = first or grads
        clip = job["gradient_clipping"]
        scale = min(1.0, clip / norm) if clip > 0 else 1.0
        lr = learning_rate(job, step)
        update(weights, grads, moments, lr, scale, step, job["optimizer"])
        result["losses"].append(loss)
        result["grad_norms"].append(norm)
        result["learning_rates"].append(lr)
    result["tensors"] = [{"name": name, "dims": list(g.shape)} for name, g in first.items()]
    return result, first


# ---- the witness, examined ------------------------------------------------------------------------
def worst_difference(job, make_weights, differentiate):
    """Central differences of the loss against the backward pass, some entries of each tensor."""
    random = np.random.default_rng(3)
    weights = {name: w + 0.1 * random.standard_normal(w.shape)
               for name, w in make_weights(job).items()}
    tokens = random.integers(0, job["vocab_size"], size=(3, 8))
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    _, grads = differentiate(weights, ids, targets, job)
    worst, scale = 0.0, max(np.abs(g).max() for g in grads.values())
    for name, weight in weights.items():
        for flat in random.choice(weight.size, size=min(6, weight.size), replace=False):
            at, h, sides = np.unravel_index(flat, weight.shape), 1e-5, []
            for sign in (1, -1):
                moved = dict(weights)
                moved[name] = weight.copy()
                moved[name][at] += sign * h
                sides.append(differentiate(moved, ids, targets, job)[0])
            worst = max(worst, abs((sides[0] - sides[1]) / (2 * h) - grads[name][at]) / scale)
    return worst


def check():
    job = {"vocab_size": 17, "hidden_size": 12, "num_blocks": 2, "num_heads": 3, "ffn_size": 20,
           "max_positions": 9, "norm_eps": 1e-5, "initializer_range": 0.3, "seed": 5}
    packed = {"documents": {"bos_token_id": None, "eos_token_id": 3, "reset_attention_mask": True,
                            "reset_position_ids": True}, "vocab_size": 5}
    worst = max(worst_difference({**job, **change}, initial_weights, loss_and_gradients)
                for change in ({}, packed))
    # Random123's own known answers for Philox4x32-10.
    ones = 0xFFFFFFFF
    known = {((0,) * 4, (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
             ((ones,) * 4, (ones, ones)): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
             ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)):
                 (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)}
    philox_ok = all(tuple(int(w) for w in philox(c, k)) == answer
                    for (c, k), answer in known.items())
    bijective = all(sorted(permute(n, 7, i) for i in range(n)) == list(range(n))
                    for n in (1, 2, 3, 64, 65, 1000))
    print(f"worst difference {worst:.2e} of the largest gradient, "
          f"philox {philox_ok}, permutation {bijective}")
    return 0 if worst < 1e-8 and philox_ok and bijective else 1


def main(arguments, usage, examine, make_weights, differentiate):
    if arguments == ["--check"]:
        return examine()
    if len(arguments) != 2:
        print(usage, file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        job = json.load(file)
    result, gradients = train(job, make_weights, differentiate)
    with open(arguments[1] + ".f64", "wb") as file:
        for grad in gradients.values():
            file.write(grad.astype("<f8").tobytes())
    with open(arguments[1] + ".json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)  # Python writes doubles so that they read back the same
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __doc__, check, initial_weights, loss_and_gradients))
