#include "checkpoint/huggingface_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/huggingface.h"
#include "data/whole_file.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/keys/model_types.h"
#include "plan/spec/layout_rules.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr absl::string_view kSingle = "model.safetensors";
constexpr absl::string_view kIndex = "model.safetensors.index.json";

// The files that an index names, each once.
absl::StatusOr<std::vector<std::string>> FilesOfIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostIndexBytes));
  const absl::StatusOr<nlohmann::json> index = ParseJson(text, {.most_bytes = kMostIndexBytes});
  if (!index.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", index.status().message()));
  }
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object()) {
    return absl::DataLossError(
        absl::StrCat(path, ": found no weight_map, expected an object of file names by tensor"));
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      return absl::DataLossError(
          absl::StrCat(path, ": weight_map of '", Shortened(tensor), "' is not a plain file name"));
    }
    files.insert(name);
  }
  return std::vector<std::string>(files.begin(), files.end());
}

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::error_code error;
  const auto path_of = [&](absl::string_view name) { return absl::StrCat(folder, "/", name); };
  if (std::filesystem::exists(path_of(kSingle), error)) {
    return std::vector<std::string>{std::string(kSingle)};
  }
  if (std::filesystem::exists(path_of(kIndex), error)) return FilesOfIndex(path_of(kIndex));
  return absl::NotFoundError(absl::StrCat(folder, ": holds neither ", kSingle, " nor ", kIndex,
                                          "; weights of other formats are not read"));
}

// "transformer.h.0.ln_1.weight" -> "h.0.ln_1.weight": so the base model alone is saved.
std::string WithoutPrefix(const std::string& name) {
  for (const absl::string_view prefix : {"transformer.", "model.", "gpt_neox."}) {
    if (absl::StartsWith(name, prefix)) return std::string(absl::StripPrefix(name, prefix));
  }
  return name;
}

// Tells whether it may be the text model of a wrapper (plan/keys/config_json.h, TextConfigOf).
bool MayBeWrapped(const ModelShape& model) {
  return !TypeOf(ArchitectureOf(model)).wrapper.empty();
}

// Returns the names under which directories hold a tensor: as it is now, of the base model alone,
// and of the text model of a wrapper, as transformers 4 and 5 write that.
std::vector<std::string> SpellingsOf(const std::string& name, const ModelShape& model) {
  const std::string bare = WithoutPrefix(name);
  if (!MayBeWrapped(model)) return {name, bare};
  return {name, bare, absl::StrCat("language_model.", name),
          absl::StrCat("model.language_model.", bare)};
}

// Returns what the directory calls the head's matrix: many hold it though it is the embedding's.
std::string HeadNameOf(ModelShape model) {
  model.tied_embeddings = false;
  for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
    if (tensor.parts.front() == "head.weight") return tensor.name;
  }
  return "lm_head.weight";
}

// Tells whether it is of a part of a wrapper beside its text model.
bool IsLeftOut(absl::string_view name, const ModelShape& model) {
  if (!MayBeWrapped(model)) return false;
  absl::ConsumePrefix(&name, "model.");
  return absl::StartsWith(name, "vision_tower.") ||
         absl::StartsWith(name, "multi_modal_projector.");
}

// GPT-2's and GPT-NeoX's causal masks and Llama's frequencies, which old files carry.
bool IsBuffer(absl::string_view name) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
         absl::EndsWith(name, ".attention.bias") ||
         absl::EndsWith(name, ".attention.masked_bias") ||
         absl::EndsWith(name, "rotary_emb.inv_freq");
}

std::string DimsText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

// Returns the dims of a directory's tensor, in its own order, from those of the parts that it is
// made of.
std::vector<int64_t> DimsOf(const HuggingFaceTensor& tensor,
                            const std::map<std::string, TensorSpec>& specs) {
  std::vector<int64_t> dims;
  for (const std::string& part : tensor.parts) {
    const std::vector<int64_t>& own = specs.at(part).dims;
    if (dims.empty()) {
      dims = own;
    } else {
      dims[0] += own[0];
    }
  }
  if (tensor.transposed) std::swap(dims[0], dims[1]);
  return dims;
}

}  // namespace

absl::StatusOr<HuggingFaceReader> HuggingFaceReader::Open(const std::string& folder,
                                                          const ModelShape& model) {
  if (model.num_experts > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": weights of mixtures of experts are not read yet"));
  }
  RETURN_IF_ERROR(FirstIssue(EngineIssues(model)));
  HuggingFaceReader reader;
  std::map<std::string, Stored> stored;
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(folder));
  for (const std::string& name : files) {
    ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(absl::StrCat(folder, "/", name)));
    for (const StoredTensor& tensor : file->tensors()) {
      if (stored.emplace(tensor.name, Stored{file.get(), &tensor}).second) continue;
      return absl::DataLossError(
          absl::StrCat(folder, ": two files hold ", tensor.name, ", expected one"));
    }
    reader.files_.push_back(std::move(file));
  }
  std::map<std::string, TensorSpec> specs;
  for (TensorSpec& spec : Tensors(model)) specs[spec.name] = std::move(spec);
  for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
    auto found = stored.end();
    for (const std::string& name : SpellingsOf(tensor.name, model)) {
      if (found == stored.end()) found = stored.find(name);
    }
    if (found == stored.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": holds no ", tensor.name, ", which the model has"));
    }
    const StoredTensor& own = *found->second.tensor;
    const std::vector<int64_t> dims = DimsOf(tensor, specs);
    if (own.dims != dims) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, ": ", own.name, " is ", DimsText(own.dims), ", the model's is ", DimsText(dims)));
    }
    if (!IsFloat(own)) {
      return absl::InvalidArgumentError(absl::StrCat(folder, ": ", own.name, " is of ", own.dtype,
                                                     "; weights of F32, BF16 or F16 are read"));
    }
    int64_t row = 0;
    for (const std::string& part : tensor.parts) {
      const int64_t run = tensor.rows_at_once;
      const int64_t stride = run * std::ssize(tensor.parts);
      reader.sources_[part] = {found->second, row, tensor.transposed, run, stride};
      row += run > 0 ? run : specs.at(part).dims[0];
    }
    stored.erase(found);
  }
  const std::vector<std::string> heads = SpellingsOf(HeadNameOf(model), model);
  for (const auto& [name, unused] : stored) {
    if (IsBuffer(name) || IsLeftOut(name, model)) continue;
    if (model.tied_embeddings && absl::c_linear_search(heads, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": holds ", name, ", for which the model has no place"));
  }
  return reader;
}

void HuggingFaceReader::ReadByHead(const Source& source, absl::Span<const int64_t> begin,
                                   absl::Span<const int64_t> end, absl::Span<float> out) {
  const StoredTensor& stored = *source.stored.tensor;
  const int64_t stride = begin.size() == 1 ? 1 : stored.dims[1];
  const int64_t first_col = begin.size() == 1 ? 0 : begin[1];
  const int64_t cols = begin.size() == 1 ? 1 : end[1] - begin[1];
  for (int64_t row = begin[0]; row < end[0]; ++row) {
    const int64_t at = source.first_row + row / source.run * source.stride + row % source.run;
    source.stored.file->Read(stored, at * stride + first_col, cols, &out[(row - begin[0]) * cols]);
  }
}

void HuggingFaceReader::Read(const std::string& name, absl::Span<const int64_t> begin,
                             absl::Span<const int64_t> end, absl::Span<float> out) const {
  const Source& source = sources_.at(name);
  const SafetensorsFile& file = *source.stored.file;
  const StoredTensor& stored = *source.stored.tensor;
  const int64_t rows = end[0] - begin[0];
  if (source.run > 0) return ReadByHead(source, begin, end, out);
  const int64_t first_row = source.first_row + begin[0];
  if (begin.size() == 1) {
    file.Read(stored, first_row, rows, out.data());
    return;
  }
  const int64_t cols = end[1] - begin[1];
  const int64_t stride = stored.dims[1];
  if (!source.transposed) {
    for (int64_t row = 0; row < rows; ++row) {
      file.Read(stored, (first_row + row) * stride + begin[1], cols, &out[row * cols]);
    }
    return;
  }
  std::vector<float> column(static_cast<size_t>(rows));
  for (int64_t col = 0; col < cols; ++col) {
    file.Read(stored, (begin[1] + col) * stride + first_row, rows, column.data());
    for (int64_t row = 0; row < rows; ++row) {
      out[row * cols + col] = column[static_cast<size_t>(row)];
    }
  }
}

}  // namespace weft
