#!/usr/bin/python3
"""The independent witness of llama, qwen2 (no bias behind attention), qwen3, starcoder2, granite,
mistral (windows), smollm3 (blocks without positions), gemma2, gemma3, glm4, nemotron, gpt_neox, olmo2,
olmo3 and cohere2: training in NumPy, double precision, one process.

Written from the papers and from the definitions in our headers, never from our C++:
  Touvron et al., arXiv:2302.13971             Llama: pre-norm blocks, no absolute positions
  Zhang & Sennrich, arXiv:1910.07467           RMSNorm
  Su et al., arXiv:2104.09864                  rotary positions; here as products of complex numbers
  Grattafiori et al., arXiv:2407.21783         Llama 3.1, which stretches them
  Shazeer, arXiv:2002.05202                    SwiGLU
  Ainslie et al., arXiv:2305.13245             shared key and value heads
  Yang et al., arXiv:2505.09388                Qwen3: RMSNorm over each head's query and key
  Gemma Team, arXiv:2503.19786                 Gemma 3: norms behind branches, windows with their own base
  Lozhkov et al., arXiv:2402.19173             StarCoder2: LayerNorm, GELU and biases as GPT-2's
  Black et al., arXiv:2204.06745               GPT-NeoX: attention and feed-forward beside each other
  OLMo Team, arXiv:2501.00656                  OLMo 2: norms behind branches alone, of all heads at once
Data order, Philox, learning rate and optimizer are those of gpt2_reference.py beside this file.

  llama_reference.py JOB.json OUT    trains; writes OUT.json and OUT.f64 as gpt2_reference.py does
  llama_reference.py --check         finite differences against the backward pass; exit 1 if wrong
"""
import math
import sys

import numpy as np

import gpt2_reference as gpt2


def initial_weights(job):
    """Every tensor by its name, in network order. Linear weights are [out, in]."""
    D, F, E, std = job["hidden_size"], job["ffn_size"], job["head_dim"], job["initializer_range"]
    wide, narrow = job["num_heads"] * E, job["num_kv_heads"] * E
    weights = {}

    def normal(name, out, inputs):
        weights[name] = gpt2.initial_normal(name, (out, inputs), std, job["seed"])

    def attention(name, out, inputs, biased=job["attention_bias"]):
        normal(name + ".weight", out, inputs)
        if biased:
            weights[name + ".bias"] = np.zeros(out)

    def norm(name):
        weights[name + ".weight"] = np.full(D, 1.0 - job["norm_offset"])
        if job["norm_biases"]:
            weights[name + ".bias"] = np.zeros(D)

    def ffn(name, out, inputs):
        normal(name + ".weight", out, inputs)
        if job["ffn_bias"]:
            weights[name + ".bias"] = np.zeros(out)

    normal("embed.tokens.weight", job["vocab_size"], D)
    for i in range(job["num_blocks"]):
        block = f"blocks.{i}."
        if job["pre_norms"]:
            norm(block + "norm1")
        attention(block + "attn.q", wide, D)
        attention(block + "attn.k", narrow, D)
        attention(block + "attn.v", narrow, D)
        if job["qk_norms"]:
            of_q, of_k = (wide, narrow) if job["wide_qk_norms"] else (E, E)
            weights[block + "attn.q_norm.weight"] = np.full(of_q, 1.0 - job["norm_offset"])
            weights[block + "attn.k_norm.weight"] = np.full(of_k, 1.0 - job["norm_offset"])
        attention(block + "attn.o", D, wide, job["output_bias"])
        if job["post_norms"]:
            norm(block + "post_norm1")
        if job["pre_norms"] and not job["shares_norm"]:
            norm(block + "norm2")
        if not job["plain_ffn"]:
            ffn(block + "mlp.gate", F, D)
        ffn(block + "mlp.up", F, D)
        ffn(block + "mlp.down", D, F)
        if job["post_norms"]:
            norm(block + "post_norm2")
    norm("final_norm")
    if not job["tied_embeddings"]:
        normal("head.weight", job["vocab_size"], D)
    return weights


# ---- layers ---------------------------------------------------------------------------------------
class Tape:
    """Weights, and the gradients that the backward pass adds up."""

    def __init__(self, weights, offset=0.0, takes_mean=False):
        self.weights = weights
        self.takes_mean = takes_mean                                     # norms of residuals do
        self.offset = offset                                             # of the weights of norms
        self.grads = {name: np.zeros_like(w) for name, w in weights.items()}

    def linear(self, name, x):                                           # [.., in] -> [.., out]
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def linear_back(self, name, dy, x):
        rows = dy.reshape(-1, dy.shape[-1])
        self.grads[name + ".weight"] += rows.T @ x.reshape(-1, x.shape[-1])
        if name + ".bias" in self.grads:
            self.grads[name + ".bias"] += rows.sum(axis=0)
        return dy @ self.weights[name + ".weight"]

    def norm(self, name, x, eps):
        if self.takes_mean and not name.endswith(("q_norm", "k_norm")):  # LayerNorm
            mean = x.mean(axis=-1, keepdims=True)
            root = np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + eps)
            normal = (x - mean) / root
            return (normal * (self.offset + self.weights[name + ".weight"])
                    + self.weights.get(name + ".bias", 0), (normal, root))
        root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
        return x / root * (self.offset + self.weights[name + ".weight"]), (x / root, root)

    def norm_back(self, name, dy, saved):
        normal, root = saved
        self.grads[name + ".weight"] += (dy * normal).sum(axis=tuple(range(dy.ndim - 1)))
        g = dy * (self.offset + self.weights[name + ".weight"])
        if name + ".bias" in self.grads:
            self.grads[name + ".bias"] += dy.sum(axis=tuple(range(dy.ndim - 1)))
        if self.takes_mean and not name.endswith(("q_norm", "k_norm")):
            g = g - g.mean(axis=-1, keepdims=True)
        return (g - normal * (g * normal).mean(axis=-1, keepdims=True)) / root


def yarn(frequencies, E, theta, scaling):
    """Peng et al., arXiv:2309.00071, 3.2 and 3.4: pairs between those that turn beta_fast and beta_slow
    times within the original positions are blended; all are longer by the attention factor."""
    def pair(turns_within):
        length = scaling["original_max_position_embeddings"] / turns_within
        return E * math.log(length / (2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair(scaling["beta_fast"])), 0)
    high = min(math.ceil(pair(scaling["beta_slow"])), E - 1)
    slow = np.clip((np.arange(E // 2) - low) / (high - low or 0.001), 0, 1)
    longer = 0.1 * math.log(scaling["factor"]) + 1
    return longer, frequencies * (1 - slow) + frequencies / scaling["factor"] * slow


def turns(job, T, slides):
    """exp(i angle) of each position and pair [T, W/2], as long as what it turns grows by."""
    E, scaling = int(job["head_dim"] * job["rotary_share"]), job["rope_scaling"]
    if slides and job["sliding_rope_theta"]:
        return np.exp(1j * np.outer(np.arange(T), job["sliding_rope_theta"] ** (-np.arange(0, E, 2) / E)))
    frequencies = job["rope_theta"] ** (-np.arange(0, E, 2) / E)
    kind = scaling.get("rope_type", "llama3")
    longer = 1
    if scaling["factor"] != 1 and kind == "yarn":
        longer, frequencies = yarn(frequencies, E, job["rope_theta"], scaling)
    elif scaling["factor"] != 1 and kind == "linear":
        frequencies = frequencies / scaling["factor"]
    elif scaling["factor"] != 1:
        wavelengths = 2 * math.pi / frequencies
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original = scaling["original_max_position_embeddings"]
        smooth = (original / wavelengths - low) / (high - low)
        slow = frequencies / scaling["factor"]
        frequencies = np.where(wavelengths < original / high, frequencies,
                               np.where(wavelengths > original / low, slow,
                                        (1 - smooth) * slow + smooth * frequencies))
    return longer * np.exp(1j * np.outer(np.arange(T), frequencies))


def turn(x, by, job):                                                    # [B,H,T,E], [T,W/2]
    half = by.shape[-1]
    turned = x.copy()                                                    # the rest of E stays
    pairs = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if job["interleaved_rotation"] else
             (slice(0, half), slice(half, 2 * half)))
    product = (x[..., pairs[0]] + 1j * x[..., pairs[1]]) * by
    turned[..., pairs[0]], turned[..., pairs[1]] = product.real, product.imag
    return turned


def split_heads(x, H):                                                   # [B,T,H*E] -> [B,H,T,E]
    B, T, width = x.shape
    return x.reshape(B, T, H, width // H).transpose(0, 2, 1, 3)


def sum_groups(x, groups):                                               # [B,H,T,E] -> [B,K,T,E]
    B, H, T, E = x.shape
    return x.reshape(B, groups, H // groups, T, E).sum(axis=2)


def score_scale(job):
    if job["query_scalar"]:
        return 1 / math.sqrt(job["query_scalar"])
    return job["attention_multiplier"] or 1 / math.sqrt(job["head_dim"])


def within(window, T):                                                   # [T,T]
    """Beltagy et al., arXiv:2004.05150, 3.1: of a window, keys less than so many positions before."""
    before = np.subtract.outer(np.arange(T), np.arange(T))
    return (before < window) if window else np.full((T, T), True)


ERF = np.vectorize(math.erf, otypes=[float])


def erf_gelu(x):
    """Hendrycks & Gimpel, arXiv:1606.08415, 2: x times the normal distribution's share below x."""
    return x * (1 + ERF(x / math.sqrt(2))) / 2


def erf_gelu_back(dy, x):
    return dy * ((1 + ERF(x / math.sqrt(2))) / 2 + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def plain(job):
    """The function of a feed-forward without a gate, and its gradient."""
    if job["squared_relu"]:
        return lambda x: np.maximum(x, 0) ** 2, lambda dy, x: dy * 2 * np.maximum(x, 0)
    return (erf_gelu, erf_gelu_back) if job["erf_gelu"] else (gpt2.gelu, gpt2.gelu_back)


def block_forward(tape, i, x, job):
    H, K, eps, b = job["num_heads"], job["num_kv_heads"], job["norm_eps"], f"blocks.{i}."
    T = x.shape[1]
    by = turns(job, T, job["windows"][i]) if job["turns"][i] else np.ones((T, job["head_dim"] // 2))
    h1, norm1 = tape.norm(b + "norm1", x, eps) if job["pre_norms"] else (x, None)
    q, k = tape.linear(b + "attn.q", h1), tape.linear(b + "attn.k", h1)
    norms = None
    if job["wide_qk_norms"]:
        q, q_norm = tape.norm(b + "attn.q_norm", q, eps)
        k, k_norm = tape.norm(b + "attn.k_norm", k, eps)
        norms = q_norm, k_norm
    q, k = split_heads(q, H), split_heads(k, K)
    if job["qk_norms"] and not job["wide_qk_norms"]:
        q, q_norm = tape.norm(b + "attn.q_norm", q, eps)
        k, k_norm = tape.norm(b + "attn.k_norm", k, eps)
        norms = q_norm, k_norm
    q, k = turn(q, by, job), turn(k, by, job).repeat(H // K, axis=1)
    v = split_heads(tape.linear(b + "attn.v", h1), K).repeat(H // K, axis=1)
    scores = q @ k.transpose(0, 1, 3, 2) * score_scale(job)
    share = 0
    if job["attention_cap"]:
        share = np.tanh(scores / job["attention_cap"])
        scores = job["attention_cap"] * share
    scores = np.where(job["visible"] & within(job["windows"][i], T), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    a = gpt2.join_heads(p @ v)
    factor = job["residual_multiplier"]
    branch, post1 = tape.linear(b + "attn.o", a), None
    if job["post_norms"]:
        branch, post1 = tape.norm(b + "post_norm1", branch, eps)
    x1 = x + factor * branch
    before = x if job["parallel_residual"] else x1
    h2, norm2 = ((h1, None) if job["shares_norm"] else
                 tape.norm(b + "norm2", before, eps) if job["pre_norms"] else (before, None))
    up = tape.linear(b + "mlp.up", h2)
    if job["plain_ffn"]:
        gate, gated = None, plain(job)[0](up)
    else:
        gate = tape.linear(b + "mlp.gate", h2)
        gated = (gpt2.gelu(gate) if job["gate"] == "gelu" else gate / (1 + np.exp(-gate))) * up
    branch, post2 = tape.linear(b + "mlp.down", gated), None
    if job["post_norms"]:
        branch, post2 = tape.norm(b + "post_norm2", branch, eps)
    return (x1 + factor * branch,
            (by, h1, norm1, norms, q, k, v, p, a, h2, norm2, gate, up, gated, post1, post2, share))


def block_backward(tape, i, dx2, saved, job):
    H, K, b = job["num_heads"], job["num_kv_heads"], f"blocks.{i}."
    by, h1, norm1, norms, q, k, v, p, a, h2, norm2, gate, up, gated, post1, post2, share = saved
    factor = job["residual_multiplier"]
    dbranch = tape.norm_back(b + "post_norm2", factor * dx2, post2) if post2 else factor * dx2
    dgated = tape.linear_back(b + "mlp.down", dbranch, gated)
    if gate is None:
        dup = plain(job)[1](dgated, up)
        dh2 = tape.linear_back(b + "mlp.up", dup, h2)
    else:
        s = 1 / (1 + np.exp(-gate))
        dgate, dup = dgated * up * (s + gate * s * (1 - s)), dgated * gate * s
        if job["gate"] == "gelu":
            dgate, dup = gpt2.gelu_back(dgated * up, gate), dgated * gpt2.gelu(gate)
        dh2 = tape.linear_back(b + "mlp.gate", dgate, h2) + tape.linear_back(b + "mlp.up", dup, h2)
    dbefore = tape.norm_back(b + "norm2", dh2, norm2) if norm2 else dh2
    dx1 = dx2 if job["parallel_residual"] else dx2 + dbefore
    dbranch = tape.norm_back(b + "post_norm1", factor * dx1, post1) if post1 else factor * dx1
    do = split_heads(tape.linear_back(b + "attn.o", dbranch, a), H)
    dv = sum_groups(p.transpose(0, 1, 3, 2) @ do, K)
    dp = do @ v.transpose(0, 1, 3, 2)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) * score_scale(job) * (1 - share**2)
    dq = turn(ds @ k, by.conj(), job)
    dk = turn(sum_groups(ds.transpose(0, 1, 3, 2) @ q, K), by.conj(), job)
    if norms and not job["wide_qk_norms"]:
        dq = tape.norm_back(b + "attn.q_norm", dq, norms[0])
        dk = tape.norm_back(b + "attn.k_norm", dk, norms[1])
    dq, dk, dv = gpt2.join_heads(dq), gpt2.join_heads(dk), gpt2.join_heads(dv)
    if job["wide_qk_norms"]:
        dq = tape.norm_back(b + "attn.q_norm", dq, norms[0])
        dk = tape.norm_back(b + "attn.k_norm", dk, norms[1])
    dh1 = sum(tape.linear_back(b + "attn." + part, d, h1)
              for part, d in (("q", dq), ("k", dk), ("v", dv)))
    if job["shares_norm"]:
        dh1 = dh1 + dbefore
    elif job["parallel_residual"]:
        dx1 = dx1 + dbefore
    return dx1 + (tape.norm_back(b + "norm1", dh1, norm1) if norm1 else dh1)


def loss_and_gradients(weights, ids, targets, job):
    """Mean cross-entropy over all tokens, and its gradient by tensor."""
    job = {**job, "visible": gpt2.visible(ids, job)}
    tape = Tape(weights, job["norm_offset"], job["layer_norms"])
    head = "embed.tokens.weight" if job["tied_embeddings"] else "head.weight"
    grown = math.sqrt(job["hidden_size"]) if job["scaled_embeddings"] else job["embedding_multiplier"]
    x = grown * weights["embed.tokens.weight"][ids]
    saved = []
    for i in range(job["num_blocks"]):
        x, kept = block_forward(tape, i, x, job)
        saved.append(kept)
    f, final = tape.norm("final_norm", x, job["norm_eps"])
    factor = job["logit_scale"] / job["logits_scaling"]
    logits = f @ weights[head].T * factor                                # [B,T,V]
    if job["logit_cap"]:
        logits = job["logit_cap"] * np.tanh(logits / job["logit_cap"])
    top = logits.max(axis=-1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(axis=-1, keepdims=True)
    at_target = np.take_along_axis(logits, targets[..., None], axis=-1)
    loss = float((np.log(total) + top - at_target).mean())

    dlogits = e / total
    np.put_along_axis(dlogits, targets[..., None],
                      np.take_along_axis(dlogits, targets[..., None], axis=-1) - 1, axis=-1)
    dlogits *= factor / targets.size
    if job["logit_cap"]:
        dlogits *= 1 - (logits / job["logit_cap"]) ** 2
    tape.grads[head] += dlogits.reshape(-1, dlogits.shape[-1]).T @ f.reshape(-1, f.shape[-1])
    dx = tape.norm_back("final_norm", dlogits @ weights[head], final)
    for i in reversed(range(job["num_blocks"])):
        dx = block_backward(tape, i, dx, saved[i], job)
    np.add.at(tape.grads["embed.tokens.weight"], ids.reshape(-1),
              grown * dx.reshape(-1, dx.shape[-1]))
    return loss, tape.grads


def check():
    job = {"vocab_size": 17, "hidden_size": 12, "num_blocks": 2, "num_heads": 4, "num_kv_heads": 2,
           "head_dim": 6, "ffn_size": 20, "norm_eps": 1e-5, "initializer_range": 0.3, "seed": 5,
           "rope_theta": 100.0, "tied_embeddings": False, "attention_bias": True,
           "output_bias": True, "qk_norms": False, "rope_scaling": {"factor": 1},
           "layer_norms": False, "plain_ffn": False, "ffn_bias": False, "embedding_multiplier": 1,
           "residual_multiplier": 1, "attention_multiplier": 0, "logits_scaling": 1,
           "windows": [0, 0], "turns": [True, True], "squared_relu": False, "gate": "silu", "norm_offset": 0,
           "post_norms": False, "scaled_embeddings": False, "interleaved_rotation": False,
           "rotary_share": 1, "sliding_rope_theta": 0, "query_scalar": 0, "attention_cap": 0, "logit_cap": 0,
           "erf_gelu": False, "pre_norms": True, "wide_qk_norms": False, "norm_biases": False,
           "parallel_residual": False, "shares_norm": False, "logit_scale": 1}
    stretched = {"factor": 4, "low_freq_factor": 1, "high_freq_factor": 4,
                 "original_max_position_embeddings": 16}
    worst = max(gpt2.worst_difference({**job, **change}, initial_weights, loss_and_gradients)
                for change in ({}, {"num_kv_heads": 1, "rope_scaling": stretched},
                               {"tied_embeddings": True, "attention_bias": False,
                                "output_bias": False}, {"output_bias": False},
                               {"embedding_multiplier": 12, "residual_multiplier": 0.22,
                                "attention_multiplier": 0.3, "logits_scaling": 8},
                               {"windows": [0, 3], "turns": [True, False]},
                               {"windows": [0, 3], "sliding_rope_theta": 10, "query_scalar": 3,
                                "post_norms": True, "norm_offset": 1, "qk_norms": True},
                               {"norm_offset": 1, "scaled_embeddings": True, "gate": "gelu"},
                               {"attention_cap": 0.5, "logit_cap": 2, "post_norms": True},
                               {"interleaved_rotation": True, "rotary_share": 0.7,
                                "post_norms": True},
                               {"layer_norms": True, "norm_biases": True, "plain_ffn": True, "ffn_bias": True},
                               {"layer_norms": True, "norm_biases": True, "plain_ffn": True, "ffn_bias": True,
                                "erf_gelu": True, "parallel_residual": True, "rotary_share": 0.7},
                               {"pre_norms": False, "post_norms": True, "qk_norms": True, "wide_qk_norms": True},
                               {"layer_norms": True, "parallel_residual": True, "shares_norm": True,
                                "logit_scale": 0.5},
                               {"qk_norms": True, "rope_scaling": {
                                   **stretched, "rope_type": "yarn", "beta_fast": 2,
                                   "beta_slow": 0.25}}))
    print(f"worst difference {worst:.2e} of the largest gradient")
    return 0 if worst < 1e-8 else 1


if __name__ == "__main__":
    sys.exit(gpt2.main(sys.argv[1:], __doc__, check, initial_weights, loss_and_gradients))
