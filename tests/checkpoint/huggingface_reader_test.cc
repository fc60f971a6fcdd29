// Weights of Hugging Face directories, by their definition: what weft exports, and what others save
// in several files, in 16 bits and with buffers beside them.
#include "checkpoint/huggingface_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "checkpoint/huggingface.h"
#include "plan/block/tensors.h"
#include "tests/checkpoint/small_models.h"

namespace weft {
namespace {

using testing::HasSubstr;

// A whole number below 200, so that 16 bits hold it: of an element of weft's tensor.
float ValueAt(const std::string& name, int64_t index) {
  return static_cast<float>((NameKey(name) + static_cast<uint64_t>(index) * 7) % 200);
}

struct Saved {
  std::string name, dtype;
  std::vector<int64_t> dims;
  std::vector<float> values;
};

// The directory's tensors of `model`, as their definition (checkpoint/huggingface.h) has them.
std::vector<Saved> SavedOf(const ModelShape& model) {
  std::map<std::string, TensorSpec> specs;
  for (const TensorSpec& spec : Tensors(model)) specs[spec.name] = spec;
  std::vector<Saved> all;
  for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
    Saved saved{.name = tensor.name, .dtype = "F32", .dims = {}, .values = {}};
    for (const std::string& part : tensor.parts) {
      const TensorSpec& spec = specs.at(part);
      for (int64_t i = 0; i < spec.elements(); ++i) saved.values.push_back(ValueAt(part, i));
      if (saved.dims.empty()) {
        saved.dims = spec.dims;
      } else {
        saved.dims[0] += spec.dims[0];
      }
    }
    if (tensor.rows_at_once > 0) {
      const std::vector<float> by_part = saved.values;
      const int64_t parts = std::ssize(tensor.parts), rows = saved.dims[0];
      const int64_t cols = saved.dims.size() > 1 ? saved.dims[1] : 1;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t part = row / (rows / parts), own = row % (rows / parts);
        const int64_t at = (own / tensor.rows_at_once * parts + part) * tensor.rows_at_once +
                           own % tensor.rows_at_once;
        for (int64_t col = 0; col < cols; ++col) {
          saved.values[static_cast<size_t>(at * cols + col)] =
              by_part[static_cast<size_t>(row * cols + col)];
        }
      }
    }
    if (tensor.transposed) {
      const std::vector<float> by_row = saved.values;
      const int64_t rows = saved.dims[0], cols = saved.dims[1];
      for (int64_t i = 0; i < rows * cols; ++i) {
        saved.values[static_cast<size_t>(i % cols * rows + i / cols)] =
            by_row[static_cast<size_t>(i)];
      }
      std::swap(saved.dims[0], saved.dims[1]);
    }
    all.push_back(std::move(saved));
  }
  return all;
}

// Returns the half of a whole number below 2048.
uint16_t HalfOf(float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);  // [0.5, 1)
  return static_cast<uint16_t>((exponent + 14) << 10 | static_cast<int>((2 * mantissa - 1) * 1024));
}

std::string BytesOf(const Saved& tensor) {
  std::string bytes;
  const auto add = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const float value : tensor.values) {
    if (tensor.dtype == "F32") add(value);
    if (tensor.dtype == "BF16") {
      add(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    }
    if (tensor.dtype == "F16") add(HalfOf(value));
    if (tensor.dtype == "U8") add(static_cast<uint8_t>(value));
  }
  return bytes;
}

class HuggingFaceReading : public testing::Test {
 protected:
  HuggingFaceReading() {
    std::string name = testing::TempDir() + "/huggingface-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~HuggingFaceReading() override { std::filesystem::remove_all(folder_); }

  void Save(const std::string& file, const std::vector<Saved>& tensors) const {
    nlohmann::ordered_json header;
    std::string data;
    for (const Saved& tensor : tensors) {
      const size_t begin = data.size();
      data += BytesOf(tensor);
      header[tensor.name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.dims}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(folder_ + "/" + file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text << data;
  }

  // Every tensor whole, and a box inside it.
  void ExpectAll(const ModelShape& model) const {
    const auto reader = HuggingFaceReader::Open(folder_, model);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (const TensorSpec& tensor : Tensors(model)) {
      std::vector<int64_t> begin(tensor.dims.size(), 0);
      ExpectBox(*reader, tensor, begin, tensor.dims);
      std::vector<int64_t> end = tensor.dims;
      for (size_t dim = 0; dim < end.size(); ++dim) {
        begin[dim] = 1;
        end[dim] -= dim == 0 ? 1 : 0;
      }
      ExpectBox(*reader, tensor, begin, end);
    }
  }

  static void ExpectBox(const HuggingFaceReader& reader, const TensorSpec& tensor,
                        const std::vector<int64_t>& begin, const std::vector<int64_t>& end) {
    std::vector<float> expected;
    const bool is_matrix = tensor.dims.size() == 2;
    for (int64_t row = begin[0]; row < end[0]; ++row) {
      if (!is_matrix) expected.push_back(ValueAt(tensor.name, row));
      for (int64_t col = is_matrix ? begin[1] : 0; is_matrix && col < end[1]; ++col) {
        expected.push_back(ValueAt(tensor.name, row * tensor.dims[1] + col));
      }
    }
    std::vector<float> values(expected.size(), -1);
    reader.Read(tensor.name, begin, end, absl::MakeSpan(values));
    EXPECT_EQ(values, expected) << tensor.name;
  }

  std::string folder_;
};

TEST_F(HuggingFaceReading, FindsEachBoxOfEachTensor) {
  for (const ModelShape& model : {Gpt2(), Llama(), GptNeox()}) {
    Save("model.safetensors", SavedOf(model));
    ExpectAll(model);
  }
}

TEST_F(HuggingFaceReading, TakesSeveralFilesSixteenBitsAndNamesWithoutPrefix) {
  std::vector<Saved> first, second;
  nlohmann::json index;
  for (Saved saved : SavedOf(Gpt2())) {
    saved.name = std::string(absl::StripPrefix(saved.name, "transformer."));
    const bool in_first = first.size() <= second.size();
    saved.dtype = in_first ? "BF16" : "F16";
    index["weight_map"][saved.name] = in_first ? "a.safetensors" : "b.safetensors";
    (in_first ? first : second).push_back(saved);
  }
  // transformers leaves these out as well: GPT-2's mask, and the head that is the token table.
  first.push_back({"h.0.attn.bias", "U8", {1, 1, 2, 2}, {1, 0, 1, 1}});
  first.push_back({"lm_head.weight", "F16", {11, 4}, std::vector<float>(44, 3)});
  Save("a.safetensors", first);
  Save("b.safetensors", second);
  std::ofstream(folder_ + "/model.safetensors.index.json") << index;
  ExpectAll(Gpt2());
}

// As transformers 4 and 5 write the text model of a gemma3, beside its vision tower.
TEST_F(HuggingFaceReading, TakesTheTextModelOfAWrapper) {
  ModelShape model = Llama();
  SetArchitecture(Architecture::kGemma3, model);
  model.attention_bias = false;
  model.tied_embeddings = true;
  model.sliding_rope_theta = 10000;
  model.query_scalar = 4;
  for (const bool is_newer : {false, true}) {
    std::vector<Saved> all;
    for (Saved saved : SavedOf(model)) {
      const std::string bare(absl::StripPrefix(saved.name, "model."));
      saved.name = is_newer ? "model.language_model." + bare : "language_model.model." + bare;
      all.push_back(saved);
    }
    const std::string before = is_newer ? "model." : "";
    all.push_back({before + "vision_tower.vision_model.embeddings.x.weight", "F32", {2}, {1, 2}});
    all.push_back({before + "multi_modal_projector.mm_soft_emb_norm.weight", "F32", {1}, {3}});
    Save("model.safetensors", all);
    ExpectAll(model);
  }
}

TEST_F(HuggingFaceReading, HalvesAreExact) {
  // As bytes: 1, -2, the largest, the least subnormal, -0, infinity.
  const uint16_t bits[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x7C00};
  const std::string text = R"({"x":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})";
  const uint64_t length = text.size();
  {
    std::ofstream out(folder_ + "/x.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text;
    out.write(reinterpret_cast<const char*>(bits), sizeof bits);
  }
  const auto file = SafetensorsFile::Open(folder_ + "/x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> values(6);
  (*file)->Read(*(*file)->Find("x"), 0, 6, values.data());
  EXPECT_THAT(values, testing::ElementsAre(1, -2, 65504, std::ldexp(1, -24), 0, INFINITY));
  EXPECT_TRUE(std::signbit(values[4]));
}

TEST_F(HuggingFaceReading, NamesWhatIsWrong) {
  struct Case {
    std::function<void(std::vector<Saved>&)> change;
    std::string message;
  };
  const Case cases[] = {
      {[](auto& saved) { saved.erase(saved.begin() + 1); },
       "holds no model.layers.0.input_layernorm.weight, which the model has"},
      {[](auto& saved) { std::swap(saved[2].dims[0], saved[2].dims[1]); },
       "model.layers.0.self_attn.q_proj.weight is [6, 8], the model's is [8, 6]"},
      {[](auto& saved) { saved[0].dtype = "U8"; },
       "model.embed_tokens.weight is of U8; weights of F32, BF16 or F16 are read"},
      {[](auto& saved) {
         saved.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {1}, {1}});
       },
       "holds model.layers.0.self_attn.q_proj.bias, for which the model has no place"},
  };
  ModelShape model = Llama();
  model.attention_bias = false;
  for (const Case& each : cases) {
    std::vector<Saved> saved = SavedOf(model);
    each.change(saved);
    Save("model.safetensors", saved);
    const auto reader = HuggingFaceReader::Open(folder_, model);
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(each.message));
  }
  std::filesystem::remove(folder_ + "/model.safetensors");
  EXPECT_EQ(HuggingFaceReader::Open(folder_, Llama()).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(folder_ + "/model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}})";
  EXPECT_THAT(std::string(HuggingFaceReader::Open(folder_, Llama()).status().message()),
              HasSubstr("weight_map of 'model.norm.weight' is not a plain file name"));
  std::filesystem::remove(folder_ + "/model.safetensors.index.json");
  std::filesystem::create_directory(folder_ + "/model.safetensors.index.json");
  EXPECT_THAT(std::string(HuggingFaceReader::Open(folder_, Llama()).status().message()),
              HasSubstr("model.safetensors.index.json: is a folder; name a file"));
}

TEST_F(HuggingFaceReading, RefusesExperts) {
  ModelShape model = Llama();
  model.num_experts = 4;
  model.experts_per_token = 2;
  model.expert_ffn_size = model.ffn_size;
  EXPECT_THAT(std::string(HuggingFaceReader::Open(folder_, model).status().message()),
              HasSubstr("weights of mixtures of experts are not read yet"));
}

}  // namespace
}  // namespace weft
