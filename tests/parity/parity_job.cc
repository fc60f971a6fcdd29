#include "tests/parity/parity_job.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"
#include "plan/keys/layout_reader.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"

namespace weft {

using Json = nlohmann::json;

JobSpec EnglishJob() {
  JobSpec job;
  job.name = "parity";
  job.model = {.vocab_size = 256,
               .hidden_size = 64,
               .num_blocks = 4,
               .num_heads = 4,
               .num_kv_heads = 4,
               .head_dim = 16,
               .ffn_size = 256,
               .max_positions = 40};
  SetArchitecture(Architecture::kGpt2, job.model);
  job.data.train = {{kTextFile}};
  job.training.seq_len = 32;
  job.training.global_batch_size = 8;
  job.training.steps = 20;
  job.optimizer.lr = 1e-3;
  job.lr_scheduler = {.type = LrSchedule::kCosine, .warmup_steps = 2, .min_lr = 5e-4};
  job.cluster.name = "test";
  job.cluster.slots_per_node = 8;
  job.cluster.device = {.name = "cpu",
                        .memory_bytes = int64_t{1} << 30,
                        .peak_flops_per_s = {.fp32 = 1e9},
                        .peak_memory_bytes_per_s = 1e9};
  job.cluster.intra_node = {.latency_s = 1e-6, .bytes_per_s = 1e9};
  job.cluster.inter_node = job.cluster.intra_node;
  return job;
}

// AdamW's eps is 1e-6. At 1e-8 the norm of step 17 is ill-conditioned: in the NumPy model, noise of
// 1e-7 of each gradient moves it by 5.6e-6, and no other norm by more than 1e-7. A rare byte's row
// of the embedding is to blame, whose small gradients AdamW makes steps of 1e-3; layouts that round
// differently are up to 1.5e-5 apart there. At 1e-6 the same noise moves it by 4.4e-7.
JobSpec EnglishLlamaJob() {
  JobSpec job = EnglishJob();
  job.model = {.architecture = Architecture::kLlama,
               .vocab_size = 256,
               .hidden_size = 64,
               .num_blocks = 4,
               .num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 24,
               .ffn_size = 176,
               .max_positions = 40,
               .tied_embeddings = false,
               .rope_scaling = {.factor = 4, .original_max_positions = 16},
               .attention_bias = true};
  job.optimizer.eps = 1e-6;
  return job;
}

namespace {

using enum AttentionSpan;

// A Family's job is that of the row `from` but for its mechanisms and for what `set` says.
struct Family {
  absl::string_view name;
  absl::string_view from;
  Architecture architecture;
  void (*set)(ModelShape& model);
};

void Unbiased(ModelShape& model) {
  model.attention_bias = false;
}
void Unstretched(ModelShape& model) {
  model.rope_scaling = {};
}
void UnbiasedAndUnstretched(ModelShape& model) {
  Unbiased(model);
  Unstretched(model);
}
// Yarn's blended pairs are in the middle of the 12.
void WithYarn(ModelShape& model) {
  model.rope_scaling = {.factor = 4,
                        .original_max_positions = 16,
                        .kind = RopeKind::kYarn,
                        .beta_fast = 2,
                        .beta_slow = 0.25};
}

constexpr Family kFamilies[] = {
    {"qwen3", "llama", Architecture::kQwen3, Unbiased},
    {"qwen3_windows", "qwen3", Architecture::kQwen3,
     [](ModelShape& model) {
       model.window = 12;
       model.spans = {kFull, kFull, kSliding, kSliding};
     }},
    {"starcoder2", "llama", Architecture::kStarcoder2,
     [](ModelShape& model) {
       model.tied_embeddings = true;
       model.head_dim = 16;  // no key of the type
     }},
    // Factors as Granite 3 has them, but for those of scores and logits: the loss of so small a
    // model would hardly fall.
    {"granite", "llama", Architecture::kGranite,
     [](ModelShape& model) {
       model.embedding_multiplier = 12;
       model.residual_multiplier = 0.22;
       model.attention_multiplier = 0.0625;
       model.logits_scaling = 0.5;
     }},
    {"mistral", "llama", Architecture::kMistral,
     [](ModelShape& model) {
       UnbiasedAndUnstretched(model);
       model.window = 12;
     }},
    {"ministral", "mistral", Architecture::kMinistral,
     [](ModelShape& model) {
       model.spans = {kFull, kSliding, kSliding, kFull};
     }},
    {"smollm3", "llama", Architecture::kSmollm3,
     [](ModelShape& model) {
       Unbiased(model);
       model.window = 9;
       model.spans = {kFull, kSliding, kFull, kFull};
       model.turns = {true, false, true, false};
     }},
    {"gemma", "llama", Architecture::kGemma,
     [](ModelShape& model) {
       UnbiasedAndUnstretched(model);
       model.tied_embeddings = true;
     }},
    {"gemma3", "gemma", Architecture::kGemma3,
     [](ModelShape& model) {
       model.rope_scaling = {.factor = 4, .kind = RopeKind::kLinear};
       model.sliding_rope_theta = 100;
       model.query_scalar = 30;
       model.window = 9;
       model.spans = {kSliding, kSliding, kFull, kSliding};
     }},
    {"gemma2", "gemma3", Architecture::kGemma2,
     [](ModelShape& model) {
       Unstretched(model);
       model.sliding_rope_theta = 0;
       model.attention_cap = 3;
       model.logit_cap = 3;
     }},
    {"glm", "llama", Architecture::kGlm,
     [](ModelShape& model) {
       Unstretched(model);
       model.attention_bias = true;
       model.rotary_share = 0.5;
     }},
    {"glm4", "glm", Architecture::kGlm4, [](ModelShape& model) { model.attention_bias = true; }},
    {"nemotron", "llama", Architecture::kNemotron,
     [](ModelShape& model) {
       UnbiasedAndUnstretched(model);
       model.rotary_share = 0.5;
     }},
    {"seed_oss", "llama", Architecture::kSeedOss, [](ModelShape&) {}},
    {"phi3", "llama", Architecture::kPhi3,
     [](ModelShape& model) {
       UnbiasedAndUnstretched(model);
       model.head_dim = 16;
     }},
    {"qwen2", "llama", Architecture::kQwen2, WithYarn},
    {"gpt_neox", "llama", Architecture::kGptNeox,
     [](ModelShape& model) {
       Unstretched(model);
       model.num_kv_heads = 4;
       model.head_dim = 16;
       model.rotary_share = 0.25;
       model.parallel_residual = true;
     }},
    {"gpt_neox_in_sequence", "gpt_neox", Architecture::kGptNeox,
     [](ModelShape& model) { model.parallel_residual = false; }},
    {"olmo2", "llama", Architecture::kOlmo2, Unbiased},
    {"olmo3", "olmo2", Architecture::kOlmo3,
     [](ModelShape& model) {
       WithYarn(model);
       // By 4, scores would be so sharp that one rank, too, is 1.8e-6 off a gradient in fp64.
       model.rope_scaling.factor = 2;
       model.sliding_rope_theta = 100;
       model.window = 9;
       model.spans = {kSliding, kSliding, kFull, kSliding};
     }},
    {"cohere2", "llama", Architecture::kCohere2,
     [](ModelShape& model) {
       Unstretched(model);
       model.tied_embeddings = true;
       model.head_dim = 16;
       model.logit_scale = 2;
       model.window = 9;
       model.spans = {kSliding, kSliding, kSliding, kFull};
       model.turns = {true, true, true, false};
     }},
};

}  // namespace

JobSpec EnglishJobOf(absl::string_view family) {
  if (family == "gpt2") return EnglishJob();
  if (family == "llama") return EnglishLlamaJob();
  for (const Family& each : kFamilies) {
    if (each.name != family) continue;
    JobSpec job = EnglishJobOf(each.from);
    SetArchitecture(each.architecture, job.model);
    each.set(job.model);
    return job;
  }
  CHECK(false);
  return {};
}

std::vector<std::string> EnglishFamilies() {
  std::vector<std::string> names = {"gpt2", "llama"};
  for (const Family& each : kFamilies) names.emplace_back(each.name);
  return names;
}

JobSpec In(Precision precision, JobSpec job) {
  job.training.mixed_precision = precision;
  return job;
}

Layout Fitted(const JobSpec& job, Layout layout) {
  layout.gradient_accumulation_steps =
      job.training.global_batch_size / layout.dp / layout.micro_batch_size;
  return layout;
}

namespace {

Json JsonOf(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json();
}

std::optional<int64_t> WholeOf(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<int64_t>();
}

Json ParamGroupsJson(const OptimizerSpec& optimizer) {
  Json groups = Json::array();
  for (const ParamGroup& group : optimizer.param_groups) {
    groups.push_back({{"params", group.params}, {"weight_decay", group.weight_decay}});
  }
  return groups;
}

Json OptimizerJson(const OptimizerSpec& optimizer) {
  return {{"name", WordOf(optimizer.name).data()},
          {"lr", optimizer.lr},
          {"beta1", optimizer.beta1},
          {"beta2", optimizer.beta2},
          {"eps", optimizer.eps},
          {"weight_decay", optimizer.weight_decay},
          {"momentum", optimizer.momentum},
          {"dampening", optimizer.dampening},
          {"nesterov", optimizer.nesterov},
          {"decay_rate", optimizer.decay_rate},
          {"clip_threshold", optimizer.clip_threshold},
          {"scale_parameter", optimizer.scale_parameter},
          {"param_groups", ParamGroupsJson(optimizer)}};
}

OptimizerSpec ReadOptimizer(const Json& optimizer) {
  OptimizerSpec spec = {.name = *ParseWord<OptimizerKind>(optimizer.at("name").get<std::string>(),
                                                          "an optimizer that weft knows"),
                        .lr = optimizer.at("lr"),
                        .beta1 = optimizer.at("beta1"),
                        .beta2 = optimizer.at("beta2"),
                        .eps = optimizer.at("eps"),
                        .weight_decay = optimizer.at("weight_decay")};
  spec.momentum = optimizer.at("momentum");
  spec.dampening = optimizer.at("dampening");
  spec.nesterov = optimizer.at("nesterov");
  spec.decay_rate = optimizer.at("decay_rate");
  spec.clip_threshold = optimizer.at("clip_threshold");
  spec.scale_parameter = optimizer.at("scale_parameter");
  for (const Json& group : optimizer.at("param_groups")) {
    spec.param_groups.push_back({group.at("params"), group.at("weight_decay")});
  }
  return spec;
}

template <typename Of>
Json ByBlock(const ModelShape& model, const Of& of) {
  Json list = Json::array();
  for (int64_t block = 0; block < model.num_blocks; ++block) list.push_back(of(block));
  return list;
}

// MechanismsJson says what a model computes, beside its sizes.
Json MechanismsJson(const ModelShape& model) {
  const RopeScaling& scaling = model.rope_scaling;
  return {{"family", WordOf(model.architecture).data()},
          {"rope_scaling",
           {{"factor", scaling.factor},
            {"low_freq_factor", scaling.low_freq_factor},
            {"high_freq_factor", scaling.high_freq_factor},
            {"original_max_position_embeddings", scaling.original_max_positions},
            {"rope_type", WordOf(scaling.kind).data()},
            {"beta_fast", scaling.beta_fast},
            {"beta_slow", scaling.beta_slow}}},
          {"attention_bias", model.attention_bias},
          {"output_bias", model.has_output_bias()},
          {"qk_norms", model.qk_norms},
          {"layer_norms", model.layer_norms},
          {"plain_ffn", model.plain_ffn},
          {"ffn_bias", model.ffn_bias},
          {"embedding_multiplier", model.embedding_multiplier},
          {"residual_multiplier", model.residual_multiplier},
          {"attention_multiplier", model.attention_multiplier},
          {"logits_scaling", model.logits_scaling},
          {"squared_relu", model.activation == Activation::kSquaredRelu},
          {"erf_gelu", model.activation == Activation::kErfGelu},
          {"pre_norms", model.pre_norms},
          {"wide_qk_norms", model.wide_qk_norms},
          {"norm_biases", model.has_norm_biases()},
          {"parallel_residual", model.parallel_residual},
          {"shares_norm", model.shares_norm},
          {"logit_scale", model.logit_scale},
          {"gate", model.activation == Activation::kGelu ? "gelu" : "silu"},
          {"norm_offset", model.norm_offset},
          {"post_norms", model.post_norms},
          {"scaled_embeddings", model.scaled_embeddings},
          {"interleaved_rotation", model.interleaved_rotation},
          {"rotary_share", model.rotary_share},
          {"sliding_rope_theta", model.sliding_rope_theta},
          {"query_scalar", model.query_scalar},
          {"attention_cap", model.attention_cap},
          {"logit_cap", model.logit_cap},
          {"windows", ByBlock(model, [&](int64_t block) { return model.window_of(block); })},
          {"turns", ByBlock(model, [&](int64_t block) { return model.turns_in(block); })}};
}

void ReadMechanisms(const Json& json, ModelShape& model) {
  SetArchitecture(*ParseWord<Architecture>(json.at("family").get<std::string>(), "an architecture"),
                  model);
  const Json& scaling = json.at("rope_scaling");
  model.rope_scaling = {
      .factor = scaling.at("factor"),
      .low_freq_factor = scaling.at("low_freq_factor"),
      .high_freq_factor = scaling.at("high_freq_factor"),
      .original_max_positions = scaling.at("original_max_position_embeddings"),
      .kind = *ParseWord<RopeKind>(scaling.at("rope_type").get<std::string>(), "a rope_type"),
      .beta_fast = scaling.at("beta_fast"),
      .beta_slow = scaling.at("beta_slow")};
  model.attention_bias = json.at("attention_bias");
  model.embedding_multiplier = json.at("embedding_multiplier");
  model.residual_multiplier = json.at("residual_multiplier");
  model.attention_multiplier = json.at("attention_multiplier");
  model.logits_scaling = json.at("logits_scaling");
  model.logit_scale = json.at("logit_scale");
  model.parallel_residual = json.at("parallel_residual");
  model.rotary_share = json.at("rotary_share");
  model.sliding_rope_theta = json.at("sliding_rope_theta");
  model.query_scalar = json.at("query_scalar");
  model.attention_cap = json.at("attention_cap");
  model.logit_cap = json.at("logit_cap");
  for (const int64_t window : json.at("windows")) {
    model.window = std::max(model.window, window);
    model.spans.push_back(window > 0 ? AttentionSpan::kSliding : AttentionSpan::kFull);
  }
  if (!model.learned_positions) model.turns = json.at("turns").get<std::vector<bool>>();
  SettleSpans(model);
}

}  // namespace

std::string ParityJobText(const ParityJob& parity) {
  const JobSpec& job = parity.job;
  Json json = {
      {"vocab_size", job.model.vocab_size},
      {"hidden_size", job.model.hidden_size},
      {"num_blocks", job.model.num_blocks},
      {"num_heads", job.model.num_heads},
      {"num_kv_heads", job.model.num_kv_heads},
      {"head_dim", job.model.head_dim},
      {"ffn_size", job.model.ffn_size},
      {"max_positions", job.model.max_positions},
      {"norm_eps", job.model.norm_eps},
      {"initializer_range", job.model.initializer_range},
      {"rope_theta", job.model.rope_theta},
      {"tied_embeddings", job.model.tied_embeddings},
      {"data", Json::array()},
      {"documents",
       {{"bos_token_id", JsonOf(job.data.bos_token_id)},
        {"eos_token_id", JsonOf(job.data.eos_token_id)},
        {"reset_attention_mask", job.data.reset_attention_mask},
        {"reset_position_ids", job.data.reset_position_ids}}},
      {"seq_len", job.training.seq_len},
      {"global_batch_size", job.training.global_batch_size},
      {"steps", job.training.steps},
      {"seed", job.training.seed},
      {"gradient_clipping", job.training.gradient_clipping},
      {"mixed_precision", WordOf(job.training.mixed_precision).data()},
      {"optimizer", OptimizerJson(job.optimizer)},
      {"lr_scheduler",
       {{"type", WordOf(job.lr_scheduler.type).data()},
        {"warmup_steps", job.lr_scheduler.warmup_steps},
        {"decay_steps", job.lr_scheduler.decay_steps},
        {"min_lr", job.lr_scheduler.min_lr}}},
      {"threads_per_worker", job.threads_per_worker},
      {"layout", LayoutText(parity.layout)},
      {"ranks_are_processes", parity.ranks == Ranks::kProcesses},
      {"wrapped", parity.wrapped},
      {"bug", static_cast<int>(parity.bug)},
      {"painted", parity.painted},
      {"counts_allocations", parity.counts_allocations},
  };
  json.update(MechanismsJson(job.model));
  for (const DataSource& source : job.data.train) json["data"].push_back(source.path);
  return json.dump(1) + "\n";
}

// The test wrote the file itself: a wrong one ends in nlohmann's exception, caught here.
absl::StatusOr<ParityJob> ReadParityJob(const std::string& path) try {
  std::ifstream file(path);
  const Json json = Json::parse(file);
  ParityJob parity;
  JobSpec& job = parity.job;
  job = EnglishJob();
  ReadMechanisms(json, job.model);
  job.model.vocab_size = json.at("vocab_size");
  job.model.hidden_size = json.at("hidden_size");
  job.model.num_blocks = json.at("num_blocks");
  job.model.num_heads = json.at("num_heads");
  job.model.num_kv_heads = json.at("num_kv_heads");
  job.model.head_dim = json.at("head_dim");
  job.model.ffn_size = json.at("ffn_size");
  job.model.max_positions = json.at("max_positions");
  job.model.norm_eps = json.at("norm_eps");
  job.model.initializer_range = json.at("initializer_range");
  job.model.rope_theta = json.at("rope_theta");
  job.model.tied_embeddings = json.at("tied_embeddings");
  job.data.train.clear();
  for (const Json& source : json.at("data")) job.data.train.push_back({source});
  const Json& documents = json.at("documents");
  job.data.bos_token_id = WholeOf(documents.at("bos_token_id"));
  job.data.eos_token_id = WholeOf(documents.at("eos_token_id"));
  job.data.reset_attention_mask = documents.at("reset_attention_mask");
  job.data.reset_position_ids = documents.at("reset_position_ids");
  job.training.seq_len = json.at("seq_len");
  job.training.global_batch_size = json.at("global_batch_size");
  job.training.steps = json.at("steps");
  job.training.seed = json.at("seed");
  job.training.gradient_clipping = json.at("gradient_clipping");
  job.training.mixed_precision = *ParsePrecision(json.at("mixed_precision").get<std::string>());
  job.optimizer = ReadOptimizer(json.at("optimizer"));
  const Json& scheduler = json.at("lr_scheduler");
  job.lr_scheduler = {.type = *ParseWord<LrSchedule>(scheduler.at("type").get<std::string>(),
                                                     "a learning-rate schedule that weft has"),
                      .warmup_steps = scheduler.at("warmup_steps"),
                      .decay_steps = scheduler.at("decay_steps"),
                      .min_lr = scheduler.at("min_lr")};
  job.threads_per_worker = json.at("threads_per_worker");
  parity.layout =
      Fitted(job, LayoutOf(*ParseLayoutSpec("layout", json.at("layout").get<std::string>())));
  parity.ranks = json.at("ranks_are_processes") ? Ranks::kProcesses : Ranks::kThreads;
  parity.wrapped = json.at("wrapped");
  parity.bug = static_cast<PlantedBug>(json.at("bug").get<int>());
  parity.painted = json.at("painted");
  parity.counts_allocations = json.at("counts_allocations");
  return parity;
} catch (const std::exception& error) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
}

}  // namespace weft
