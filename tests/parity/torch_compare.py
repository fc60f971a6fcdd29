"""PyTorch and transformers as a witness: the same random weights, exported by weft as a Hugging Face
directory, and then logits, gradients and the losses of 10 AdamW steps of both.

  python torch_compare.py BUILD_BIN [FAMILY...]   BUILD_BIN: build/release/bin, with weft_torch_side

Not in CI: PyTorch is large. In any virtual environment: pip install torch transformers safetensors
numpy. Every tensor is random (no bias is zero, no norm is one), so that a tensor in a wrong place
would show. PyTorch computes in double precision, so that what is seen is weft's fp32 rounding; the
names and shapes are mapped here once more, by hand, not by weft's export.

transformers also saves the directory again: each tensor has the same bytes, each key of config.json
that it reads the same value.

Bounds, as everywhere in tests/parity: losses within 1e-6, relative; each gradient tensor within
||g - e|| <= 2e-6 max(||e||, 1e-3 ||E||), E all gradients; logits within 2e-6 of their norm.

On 2026-11-28 and 29 with torch 2.15.0, transformers 5.24.0 and numpy 2.4.6 (EPYC, Zen 5), by OpenBLAS's
kernels for Haswell, ministral to cohere2 by those for AVX-512; by these the others' gradients are up to
1.5e-06, gemma3's 1.6e-06 and those of qwen3_windows 2.1e-06, which is above the bound:
  gpt2: logits 4.6e-07, worst gradient 7.6e-07, losses 9.8e-09 (of 10 steps, 5.9613 to 4.3096)
  llama: logits 4.8e-07, worst gradient 1.1e-06, losses 1.0e-08 (of 10 steps, 5.8517 to 4.4265)
  mistral: logits 5.5e-07, worst gradient 1.2e-06, losses 1.3e-08 (of 10 steps, 5.8897 to 4.4110)
  qwen2 (yarn): logits 5.4e-07, worst gradient 1.2e-06, losses 1.8e-08 (of 10 steps, 5.8800 to 4.4038)
  qwen3: logits 6.1e-07, worst gradient 1.6e-06, losses 1.9e-08 (of 10 steps, 5.8800 to 4.4384)
  qwen3_windows: logits 6.2e-07, worst gradient 1.8e-06, losses 2.1e-08 (of 10 steps, 5.8879 to 4.4243)
  phi3: logits 6.6e-07, worst gradient 1.3e-06, losses 6.9e-08 (of 10 steps, 5.7877 to 4.5473)
  gemma: logits 4.5e-07, worst gradient 7.0e-07, losses 9.6e-09 (of 10 steps, 5.6969 to 4.3723)
  gemma2: logits 5.3e-07, worst gradient 9.6e-07, losses 7.0e-09 (of 10 steps, 5.6551 to 4.5556)
  gemma3: logits 5.9e-07, worst gradient 1.4e-06, losses 1.7e-08 (of 10 steps, 5.6809 to 4.4503)
  glm: logits 5.0e-07, worst gradient 1.3e-06, losses 1.9e-08 (of 10 steps, 5.8989 to 4.4104)
  glm4: logits 5.6e-07, worst gradient 1.4e-06, losses 2.0e-08 (of 10 steps, 5.8943 to 4.4191)
  granite: logits 1.9e-07, worst gradient 4.7e-07, losses 2.5e-08 (of 10 steps, 7.0171 to 5.3173)
  nemotron: logits 6.2e-07, worst gradient 1.1e-06, losses 1.0e-08 (of 10 steps, 5.7984 to 4.3659)
  seed_oss: logits 5.1e-07, worst gradient 1.2e-06, losses 8.7e-09 (of 10 steps, 5.8815 to 4.4130)
  smollm3: logits 5.2e-07, worst gradient 1.2e-06, losses 2.1e-08 (of 10 steps, 5.8972 to 4.4352)
  starcoder2: logits 4.5e-07, worst gradient 9.1e-07, losses 1.0e-08 (of 10 steps, 6.0461 to 4.3248)
  ministral: logits 3.1e-07, worst gradient 1.2e-06, losses 1.1e-08 (of 10 steps, 5.8822 to 4.4430)
  gpt_neox: logits 2.4e-07, worst gradient 1.4e-06, losses 1.2e-08 (of 10 steps, 5.7310 to 4.2106)
  gpt_neox_in_sequence: logits 2.5e-07, worst gradient 1.2e-06, losses 1.5e-08 (of 10 steps, 5.7512 to 4.2919)
  olmo2: logits 3.8e-07, worst gradient 1.6e-06, losses 1.4e-08 (of 10 steps, 5.8433 to 4.5001)
  olmo3: logits 4.3e-07, worst gradient 1.6e-06, losses 2.0e-08 (of 10 steps, 5.8710 to 4.4478)
  cohere2: logits 3.3e-07, worst gradient 1.1e-06, losses 3.2e-08 (of 10 steps, 6.8756 to 4.0662)
  llama_with_terms: logits 4.9e-07, worst gradient 1.4e-06, losses 4.0e-08 (of 10 steps, 6.2011 to 4.9095)
  gemma2_with_terms: logits 5.3e-07, worst gradient 1.0e-06, losses 4.1e-09 (of 10 steps, 6.0130 to 5.0070)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

LOSS_BOUND, GRADIENT_BOUND, LOGITS_BOUND = 1e-6, 2e-6, 2e-6


def gpt2_names(blocks, hidden):
    """weft's name -> the view of it in the state of GPT2LMHeadModel: name, columns, transposed."""
    names = {"embed.tokens.weight": ("transformer.wte.weight", None, False),
             "embed.positions.weight": ("transformer.wpe.weight", None, False),
             "final_norm.weight": ("transformer.ln_f.weight", None, False),
             "final_norm.bias": ("transformer.ln_f.bias", None, False)}
    for i in range(blocks):
        ours, theirs = f"blocks.{i}.", f"transformer.h.{i}."
        for kind, turned in (("weight", True), ("bias", False)):
            names[f"{ours}norm1.{kind}"] = (f"{theirs}ln_1.{kind}", None, False)
            names[f"{ours}norm2.{kind}"] = (f"{theirs}ln_2.{kind}", None, False)
            for part, name in enumerate("qkv"):
                columns = slice(part * hidden, (part + 1) * hidden)
                names[f"{ours}attn.{name}.{kind}"] = (f"{theirs}attn.c_attn.{kind}", columns, turned)
            names[f"{ours}attn.o.{kind}"] = (f"{theirs}attn.c_proj.{kind}", None, turned)
            names[f"{ours}mlp.up.{kind}"] = (f"{theirs}mlp.c_fc.{kind}", None, turned)
            names[f"{ours}mlp.down.{kind}"] = (f"{theirs}mlp.c_proj.{kind}", None, turned)
    return names


def llama_names(model, tensors):
    """weft's name -> name, rows, False: phi3 has several of weft's in one tensor, one below the other."""
    config = model.config
    heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query, key = config.num_attention_heads * heads, config.num_key_value_heads * heads
    F = config.intermediate_size
    names = {"embed.tokens.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight"}
    fused = {}
    for kind in ("weight", "bias"):
        names[f"final_norm.{kind}"] = f"model.norm.{kind}"
        for i in range(config.num_hidden_layers):
            ours, theirs = f"blocks.{i}.", f"model.layers.{i}."
            names[f"{ours}norm1.{kind}"] = f"{theirs}input_layernorm.{kind}"
            names[f"{ours}norm2.{kind}"] = f"{theirs}post_attention_layernorm.{kind}"
            for part in "qkvo":
                names[f"{ours}attn.{part}.{kind}"] = f"{theirs}self_attn.{part}_proj.{kind}"
            for part in "qk":
                names[f"{ours}attn.{part}_norm.{kind}"] = f"{theirs}self_attn.{part}_norm.{kind}"
            for part in ("gate", "up", "down"):
                names[f"{ours}mlp.{part}.{kind}"] = f"{theirs}mlp.{part}_proj.{kind}"
            if config.model_type == "starcoder2":
                names[f"{ours}mlp.up.{kind}"] = f"{theirs}mlp.c_fc.{kind}"
                names[f"{ours}mlp.down.{kind}"] = f"{theirs}mlp.c_proj.{kind}"
            if config.model_type in ("gemma2", "gemma3_text", "olmo2", "olmo3"):
                names[f"{ours}post_norm1.{kind}"] = f"{theirs}post_attention_layernorm.{kind}"
                names[f"{ours}norm2.{kind}"] = f"{theirs}pre_feedforward_layernorm.{kind}"
                names[f"{ours}post_norm2.{kind}"] = f"{theirs}post_feedforward_layernorm.{kind}"
            if config.model_type == "glm4":
                names[f"{ours}post_norm1.{kind}"] = f"{theirs}post_self_attn_layernorm.{kind}"
                names[f"{ours}post_norm2.{kind}"] = f"{theirs}post_mlp_layernorm.{kind}"
            gate_up = f"{theirs}mlp.gate_up_proj.{kind}"
            if config.model_type in ("glm", "glm4"):
                fused[f"{ours}mlp.gate.{kind}"] = gate_up, slice(0, F)
                fused[f"{ours}mlp.up.{kind}"] = gate_up, slice(F, 2 * F)
            if config.model_type == "phi3":
                qkv = f"{theirs}self_attn.qkv_proj.{kind}"
                fused[f"{ours}attn.q.{kind}"] = qkv, slice(0, query)
                fused[f"{ours}attn.k.{kind}"] = qkv, slice(query, query + key)
                fused[f"{ours}attn.v.{kind}"] = qkv, slice(query + key, query + 2 * key)
                fused[f"{ours}mlp.gate.{kind}"] = gate_up, slice(0, F)
                fused[f"{ours}mlp.up.{kind}"] = gate_up, slice(F, 2 * F)
    return {ours: (*fused.get(ours, (theirs, None)), False)
            for ours, theirs in names.items() if ours in tensors}


def neox_names(config, tensors):
    """The same of a gpt_neox, whose queries, keys and values are one tensor, head by head."""
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    rows = np.arange(3 * heads * size).reshape(heads, 3, size)
    names = {"embed.tokens.weight": ("gpt_neox.embed_in.weight", None),
             "head.weight": ("lm_head.weight", None)}          # embed_out in files
    for kind in ("weight", "bias"):
        names[f"final_norm.{kind}"] = f"gpt_neox.final_layer_norm.{kind}", None
        for i in range(config.num_hidden_layers):
            ours, theirs = f"blocks.{i}.", f"gpt_neox.layers.{i}."
            for part, name in enumerate("qkv"):
                names[f"{ours}attn.{name}.{kind}"] = (f"{theirs}attention.query_key_value.{kind}",
                                                     rows[:, part].flatten())
            for layer, name in (("norm1", "input_layernorm"), ("norm2", "post_attention_layernorm"),
                                ("attn.o", "attention.dense"), ("mlp.up", "mlp.dense_h_to_4h"),
                                ("mlp.down", "mlp.dense_4h_to_h")):
                names[f"{ours}{layer}.{kind}"] = f"{theirs}{name}.{kind}", None
    return {ours: (*place, False) for ours, place in names.items() if ours in tensors}


def names_of(family, model, tensors):
    config = model.config
    if family == "gpt2":
        return gpt2_names(config.n_layer, config.n_embd)
    return neox_names(config, tensors) if config.model_type == "gpt_neox" else llama_names(model, tensors)


def view(state, place):
    name, columns, turned = place                # columns of what is turned, else rows
    tensor = state[name]
    if columns is not None:
        tensor = tensor[..., columns] if turned or tensor.ndim == 1 else tensor[columns]
    return tensor.T if turned else tensor


def distance(got, expected, floor=0.0):
    got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    return np.linalg.norm(got - expected) / max(np.linalg.norm(expected), floor)


def loss_of(model, ids, targets, job):
    logits = model(input_ids=ids).logits
    squared = torch.logsumexp(logits, -1) ** 2
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(),
        label_smoothing=job["label_smoothing"]) + job["z_loss"] * squared.mean()


def optimizer_of(model, job):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": job["weight_decay"]},
                              {"params": others, "weight_decay": 0.0}],
                             lr=1.0, betas=tuple(job["betas"]), eps=job["eps"])


def clip(model, most):
    """By the global norm, without the 1e-6 that torch.nn.utils adds to it."""
    norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
    if most > 0 and norm > most:
        for p in model.parameters():
            p.grad *= most / norm


def same_directory(model, ours, theirs):
    """transformers saves what it read of weft's export: the same bytes of every tensor, and the same
    values of every key of config.json that its configuration of the type has."""
    model.save_pretrained(theirs)
    mine, back = load_file(ours / "model.safetensors"), load_file(theirs / "model.safetensors")
    assert set(mine) == set(back), set(mine) ^ set(back)
    for name, values in mine.items():
        assert values.dtype == back[name].dtype and values.tobytes() == back[name].tobytes(), name
    mine = json.loads((ours / "config.json").read_text())
    back = json.loads((theirs / "config.json").read_text())
    rope = back.pop("rope_parameters", None)
    by_kind = mine.pop("rope_parameters", None)
    if by_kind is not None:                           # an olmo3's sliding blocks have another base
        for kind, own in by_kind.items():
            assert own == {key: rope[kind][key] for key in own}, (kind, own, rope[kind])
        rope = None
    if rope is not None and rope.get("full_attention") is not None:
        assert rope["sliding_attention"] == {"rope_theta": mine["rope_local_base_freq"],
                                             "rope_type": "default"}
        rope = rope["full_attention"]
    if rope is not None:
        assert rope["rope_theta"] == mine.get("rope_theta", mine.get("rotary_emb_base"))
        assert rope.get("partial_rotary_factor", 1) == mine.get("rotary_pct", rope.get(
            "partial_rotary_factor", 1))
        assert rope["rope_type"] == (mine["rope_scaling"] or {"rope_type": "default"})["rope_type"]
    spelled_anew = {"dtype", "transformers_version"}
    if mine.get("eos_token_id") is None:              # glm's configuration then says its own
        spelled_anew.add("eos_token_id")
    for key in set(mine) & set(back) - spelled_anew:
        assert mine[key] == back[key], (key, mine[key], back[key])
    return sorted(set(back) - set(mine) - spelled_anew)


def compare(family, bin_folder, folder):
    folder.mkdir(parents=True)
    subprocess.run([f"{bin_folder}/weft_torch_side", family, str(folder)], check=True, timeout=600)
    job = json.loads((folder / "job.json").read_text())
    steps, G, T = job["steps"], job["global_batch_size"], job["seq_len"]
    tokens = np.fromfile(folder / "tokens.i32", dtype=np.int32).reshape(steps, 2, G, T)
    tokens = torch.from_numpy(tokens.astype(np.int64))
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "hf", dtype=torch.float32, output_loading_info=True,
        attn_implementation="eager")
    assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
    besides = same_directory(model, folder / "hf", folder / "theirs")
    print(f"{family}: the directory comes back the same; keys that weft leaves to defaults: {besides}")
    model = model.double().train()
    assert not any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules())

    worst = {}
    with torch.no_grad():
        expected = model(input_ids=tokens[0, 0]).logits.numpy()
    got = np.fromfile(folder / "logits.f32", dtype=np.float32).reshape(G, T, job["vocab_size"])
    worst["logits"] = distance(got, expected)

    optimizer = optimizer_of(model, job)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    worst["loss"] = 0.0
    for step in range(steps):
        model.zero_grad()
        loss = loss_of(model, tokens[step, 0], tokens[step, 1], job)
        loss.backward()
        worst["loss"] = max(worst["loss"], abs(lines[step]["loss"] / loss.item() - 1))
        if step == 0:
            gradients = load_file(folder / "gradients.safetensors")
            names = names_of(family.removesuffix("_with_terms"), model, gradients)
            assert set(names) == set(gradients), set(names) ^ set(gradients)
            theirs = {name: p.grad.numpy() for name, p in model.named_parameters()}
            whole = np.sqrt(sum((g**2).sum() for g in theirs.values()))
            worst["gradient"] = max(distance(gradients[ours], view(theirs, place), 1e-3 * whole)
                                    for ours, place in names.items())
        clip(model, job["gradient_clipping"])
        for group in optimizer.param_groups:
            group["lr"] = job["learning_rates"][step]
        optimizer.step()
    first, last = lines[0]["loss"], lines[-1]["loss"]
    print(f"{family}: logits {worst['logits']:.1e}, worst gradient {worst['gradient']:.1e}, "
          f"losses {worst['loss']:.1e} (of 10 steps, {first:.4f} to {last:.4f})")
    return (worst["logits"] < LOGITS_BOUND and worst["gradient"] < GRADIENT_BOUND
            and worst["loss"] < LOSS_BOUND)


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}")
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        chosen = arguments[1:]
        agreed = [compare(family, arguments[0], work / family)
                  for family in ("gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_windows", "phi3",
                                 "gemma", "gemma2", "gemma3", "glm", "glm4", "granite", "nemotron",
                                 "seed_oss", "smollm3", "starcoder2", "ministral", "gpt_neox",
                                 "gpt_neox_in_sequence", "olmo2", "olmo3", "cohere2",
                                 "llama_with_terms", "gemma2_with_terms")
                  if not chosen or family in chosen]
    print("agreed" if all(agreed) else "DISAGREED")
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
