#include "checkpoint/huggingface.h"

#include <filesystem>
#include <list>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/safetensors.h"
#include "data/whole_file.h"
#include "nlohmann/json.hpp"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/keys/config_writer.h"
#include "plan/keys/value.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson JsonOf(const Value& value) {
  OrderedJson json;
  if (value.is_list()) json = OrderedJson::array();
  for (const Value& item : value.items) json.push_back(JsonOf(item));
  for (const auto& [name, node] : value.entries) json[name] = JsonOf(node);
  if (!value.is_scalar()) return json;
  if (value.quoted) return value.scalar;
  if (value.scalar == "true" || value.scalar == "false") return value.scalar == "true";
  const std::optional<int64_t> whole = ParseWholeNumber(value.scalar);
  if (whole && value.scalar.find('.') == std::string::npos) return *whole;
  if (const std::optional<double> number = ParseNumber(value.scalar)) return *number;
  return value.scalar;
}

// The parts one below the other, and their common dims.
struct Stacked {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

absl::StatusOr<Stacked> Stack(const HuggingFaceTensor& tensor,
                              const std::map<std::string, TensorSpec>& specs,
                              const CheckpointReader& reader) {
  Stacked stacked;
  for (const std::string& part : tensor.parts) {
    const TensorSpec& spec = specs.at(part);
    const size_t before = stacked.values.size();
    stacked.values.resize(before + static_cast<size_t>(spec.elements()));
    const std::vector<int64_t> begin(spec.dims.size(), 0);
    RETURN_IF_ERROR(reader.Read(part, spec.dims, begin, spec.dims,
                                absl::MakeSpan(stacked.values).subspan(before)));
    if (stacked.dims.empty()) {
      stacked.dims = spec.dims;
    } else {
      stacked.dims[0] += spec.dims[0];
    }
  }
  return stacked;
}

// Rows of `parts` equal parts, one below the other, as they follow each other in files of
// HuggingFaceTensor::rows_at_once.
Stacked ByHead(const Stacked& from, int64_t parts, int64_t rows_at_once) {
  Stacked to = {from.dims, {}};
  to.values.reserve(from.values.size());
  const int64_t part_rows = from.dims[0] / parts;
  const int64_t cols = std::ssize(from.values) / from.dims[0];
  for (int64_t first = 0; first < part_rows; first += rows_at_once) {
    for (int64_t part = 0; part < parts; ++part) {
      const auto begin = from.values.begin() + (part * part_rows + first) * cols;
      to.values.insert(to.values.end(), begin, begin + rows_at_once * cols);
    }
  }
  return to;
}

Stacked TurnedOver(const Stacked& from) {
  Stacked to{{from.dims[1], from.dims[0]}, std::vector<float>(from.values.size())};
  const auto rows = static_cast<size_t>(from.dims[0]), cols = static_cast<size_t>(from.dims[1]);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t col = 0; col < cols; ++col) {
      to.values[col * rows + row] = from.values[row * cols + col];
    }
  }
  return to;
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto file, DurableFile::Create(EntryOf(path), std::ssize(text)));
  RETURN_IF_ERROR(file->Append(text));
  return file->Close();
}

}  // namespace

std::string HuggingFaceConfig(const ModelShape& model) {
  OrderedJson config = JsonOf(ConfigTree(model));
  // Whoever has a tokenizer knows them; the defaults of a family may lie outside the vocabulary.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["pad_token_id"] = nullptr;
  config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

absl::Status ExportHuggingFace(const CheckpointReader& reader, const ModelShape& model,
                               const std::string& folder, const HuggingFaceForm& form) {
  RETURN_IF_ERROR(CheckModel(model));
  if (model.num_experts > 0) {
    return absl::InvalidArgumentError("a model with experts cannot be exported yet");
  }
  RETURN_IF_ERROR(FirstIssue(EngineIssues(model)));
  std::error_code error;
  const bool exists = std::filesystem::exists(folder, error);
  if (exists && (!std::filesystem::is_directory(folder, error) ||
                 !std::filesystem::is_empty(folder, error))) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": is there already, expected a new or empty folder"));
  }
  std::map<std::string, TensorSpec> specs;
  for (TensorSpec& spec : Tensors(model)) specs[spec.name] = std::move(spec);
  std::list<std::vector<float>> values;  // the tensors borrow from it until they are written
  std::vector<TensorToWrite> tensors;
  for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
    ASSIGN_OR_RETURN(Stacked stacked, Stack(tensor, specs, reader));
    if (tensor.rows_at_once > 0) {
      stacked = ByHead(stacked, std::ssize(tensor.parts), tensor.rows_at_once);
    }
    if (tensor.transposed) stacked = TurnedOver(stacked);
    values.push_back(std::move(stacked.values));
    tensors.push_back({tensor.name, std::move(stacked.dims), values.back(), form.dtype});
  }
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(WriteSafetensors(folder + "/model.safetensors", tensors, {}).status());
  for (const std::string& path : form.besides) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostIndexBytes));
    const std::string name = std::filesystem::path(path).filename().string();
    RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", name), text));
  }
  // Last: a directory without it is none.
  RETURN_IF_ERROR(WriteText(folder + "/config.json",
                            form.config.empty() ? HuggingFaceConfig(model) : form.config));
  return SyncFolder(folder);
}

}  // namespace weft
