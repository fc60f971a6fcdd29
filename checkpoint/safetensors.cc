#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/durable_file.h"
#include "plan/errors.h"
#include "text/json.h"
#include "xxhash.h"

namespace weft {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are copied as they lie");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

absl::Status Broken(absl::string_view found, absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("header: found ", found, ", expected ", expected));
}

// Bits per element; 0: no such dtype.
int64_t DtypeBits(const std::string& dtype) {
  static constexpr std::pair<absl::string_view, int64_t> kBits[] = {
      {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"F64", 64},        {"I64", 64},
      {"U64", 64},    {"C64", 64},    {"I32", 32},        {"U32", 32},        {"I16", 16},
      {"U16", 16},    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
      {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return 0;
}

// IEEE 754 binary16, exactly.
float FromHalf(uint16_t bits) {
  constexpr int kMantissaBits = 10;
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t exponent = bits >> kMantissaBits & 31;
  const uint32_t mantissa = bits & 1023;
  if (exponent == 0) {  // 0 and subnormals: multiples of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t widened = exponent == 31 ? 255 : exponent + 112;  // biases of 15 and 127
  return std::bit_cast<float>(sign | widened << 23 | mantissa << 13);
}

// The nearest binary16, ties to even; infinity above its range.
uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0F) return sign | 0x7c00;
  if (magnitude < 0x1p-14F) {  // 0 and subnormals: multiples of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24F));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
}

// The nearest bfloat16, ties to even.
uint16_t ToBrain(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A JSON number that is a whole, non-negative i64; -1: it is not.
int64_t Count(const Json& value) {
  if (!value.is_number_unsigned()) return -1;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return -1;
  return static_cast<int64_t>(number);
}

// Bytes of a tensor; -1 if they are not whole or overflow.
int64_t TensorBytes(const std::vector<int64_t>& dims, int64_t bits) {
  int64_t total = bits;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(total, dim, &total)) return -1;
  }
  return total % 8 == 0 ? total / 8 : -1;
}

// `value` is one entry of the header.
absl::StatusOr<StoredTensor> ParseTensor(const std::string& name, const Json& value) {
  const std::string where = absl::StrCat("tensor '", Shortened(name), "' ");
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Broken(absl::StrCat(where, "of another form"),
                  "an object of dtype, shape and data_offsets");
  }
  StoredTensor tensor;
  tensor.name = name;
  if (!value["dtype"].is_string()) return Broken(where + "dtype that is not a string", "a string");
  tensor.dtype = value["dtype"].get<std::string>();
  const int64_t bits = DtypeBits(tensor.dtype);
  if (bits == 0)
    return Broken(absl::StrCat(where, "dtype '", Shortened(tensor.dtype), "'"), "a known dtype");
  if (!value["shape"].is_array()) return Broken(where + "shape that is not an array", "an array");
  for (const Json& dim : value["shape"]) {
    tensor.dims.push_back(Count(dim));
    if (tensor.dims.back() < 0) {
      return Broken(absl::StrCat(where, "shape entry ",
                                 dim.is_number() ? dim.dump() : "that is not a number"),
                    "a whole number >= 0");
    }
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || Count(offsets[0]) < 0 ||
      Count(offsets[1]) < 0) {
    return Broken(where + "data_offsets that are no pair of whole numbers", "[begin, end]");
  }
  tensor.begin = Count(offsets[0]);
  tensor.end = Count(offsets[1]);
  const int64_t bytes = TensorBytes(tensor.dims, bits);
  if (bytes < 0 || tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    return Broken(absl::StrCat(where, "data_offsets [", tensor.begin, ", ", tensor.end, "]"),
                  absl::StrCat(bytes, " bytes for shape [", absl::StrJoin(tensor.dims, ","),
                               "] of ", tensor.dtype));
  }
  return tensor;
}

// The parsed text; DataLoss if it is no JSON object or if an object names a key twice.
absl::StatusOr<Json> ParseObject(absl::string_view text) {
  absl::StatusOr<Json> json =
      ParseJson(text, {.most_bytes = kMaxHeaderBytes, .is_key_told_once = true});
  if (!json.ok()) return absl::DataLossError(absl::StrCat("header: ", json.status().message()));
  if (!json->is_object()) return Broken("JSON that is no object", "an object");
  return json;
}

absl::Status CheckTiling(const std::vector<StoredTensor>& tensors, int64_t data_bytes) {
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != end) {
      return Broken(absl::StrCat("tensor '", Shortened(tensor.name), "' at offset ", tensor.begin),
                    absl::StrCat("offset ", end, ": no holes and no overlaps"));
    }
    end = tensor.end;
  }
  if (end == data_bytes) return absl::OkStatus();
  return Broken(absl::StrCat(data_bytes, " bytes of data"), absl::StrCat(end, " bytes"));
}

int64_t BytesOf(const TensorToWrite& tensor) {
  return std::ssize(tensor.values) * DtypeBits(tensor.dtype) / 8;
}

// Appends a tensor's values in its own dtype.
absl::Status AppendValues(const TensorToWrite& tensor, DurableFile& file) {
  if (tensor.dtype == "F32") {
    return file.Append({reinterpret_cast<const char*>(tensor.values.data()),
                        tensor.values.size() * sizeof(float)});
  }
  constexpr size_t kAtOnce = size_t{1} << 20;
  const bool is_half = tensor.dtype == "F16";
  std::vector<uint16_t> rounded;
  for (size_t first = 0; first < tensor.values.size(); first += kAtOnce) {
    rounded.clear();
    for (const float value : tensor.values.subspan(first, kAtOnce)) {
      rounded.push_back(is_half ? ToHalf(value) : ToBrain(value));
    }
    RETURN_IF_ERROR(file.Append(
        {reinterpret_cast<const char*>(rounded.data()), rounded.size() * sizeof(uint16_t)}));
  }
  return absl::OkStatus();
}

std::string HeaderText(const std::vector<const TensorToWrite*>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto quoted = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::map<std::string, std::string> all = metadata;
  all.emplace("format", "pt");  // some Hugging Face loaders ask for it
  std::vector<std::string> pairs;
  pairs.reserve(all.size());
  for (const auto& [key, value] : all) pairs.push_back(quoted(key) + ":" + quoted(value));
  std::string text = absl::StrCat("{\"__metadata__\":{", absl::StrJoin(pairs, ","), "}");
  int64_t begin = 0;
  for (const TensorToWrite* tensor : tensors) {
    const int64_t end = begin + BytesOf(*tensor);
    absl::StrAppend(&text, ",", quoted(tensor->name), ":{\"dtype\":", quoted(tensor->dtype),
                    ",\"shape\":[", absl::StrJoin(tensor->dims, ","), "],\"data_offsets\":[", begin,
                    ",", end, "]}");
    begin = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  if (json.empty() || json.front() != '{') return Broken("no '{' as its first byte", "'{'");
  ASSIGN_OR_RETURN(const Json parsed, ParseObject(json));
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name != "__metadata__") {
      ASSIGN_OR_RETURN(StoredTensor tensor, ParseTensor(name, value));
      header.tensors.push_back(std::move(tensor));
      continue;
    }
    if (value.is_null()) continue;
    if (!value.is_object()) return Broken("__metadata__ that is not an object", "strings by name");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        return Broken(absl::StrCat("__metadata__ '", Shortened(key), "' that is not a string"),
                      "a string");
      }
      header.metadata[key] = text.get<std::string>();
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  RETURN_IF_ERROR(CheckTiling(header.tensors, data_bytes));
  return header;
}

absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                             absl::Span<const TensorToWrite> tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::string& folder) {
  std::vector<const TensorToWrite*> ordered;
  for (const TensorToWrite& tensor : tensors) {
    CHECK(tensor.dtype == "F32" || tensor.dtype == "BF16" || tensor.dtype == "F16");
    CHECK(TensorBytes(tensor.dims, DtypeBits(tensor.dtype)) == BytesOf(tensor));
    ordered.push_back(&tensor);
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  int64_t data_bytes = 0;
  for (size_t i = 0; i < ordered.size(); ++i) {
    CHECK(i == 0 || ordered[i - 1]->name != ordered[i]->name);
    data_bytes += BytesOf(*ordered[i]);
  }
  const std::string header = HeaderText(ordered, metadata);
  const uint64_t length = header.size();
  const int64_t header_bytes = kLengthBytes + static_cast<int64_t>(length);
  ASSIGN_OR_RETURN(const auto file,
                   DurableFile::Create(EntryOf(path, folder), header_bytes + data_bytes));
  RETURN_IF_ERROR(file->Append({reinterpret_cast<const char*>(&length), sizeof length}));
  RETURN_IF_ERROR(file->Append(header));
  for (const TensorToWrite* tensor : ordered) {
    RETURN_IF_ERROR(AppendValues(*tensor, *file));
  }
  RETURN_IF_ERROR(file->Close());
  return WrittenFile{file->bytes(), file->hash()};
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "open");
  struct stat info = {};
  const int described = fstat(fd, &info);
  const int stat_error = errno;
  if (described != 0 || !S_ISREG(info.st_mode) || info.st_size < kLengthBytes) {
    close(fd);
    if (described != 0) return FileError(stat_error, path, "stat");
    return absl::DataLossError(absl::StrCat(path, ": 0: found ",
                                            S_ISREG(info.st_mode) ? info.st_size : 0,
                                            " bytes, expected a header length of 8"));
  }
  void* mapped = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_error = errno;
  close(fd);
  if (mapped == MAP_FAILED) return FileError(map_error, path, "mmap");
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->mapped_ = static_cast<const uint8_t*>(mapped);
  file->mapped_bytes_ = info.st_size;
  const absl::Status parsed = file->ParseMapped();
  if (!parsed.ok()) return absl::Status(parsed.code(), absl::StrCat(path, ": ", parsed.message()));
  return file;
}

absl::Status SafetensorsFile::ParseMapped() {
  uint64_t length = 0;
  std::memcpy(&length, mapped_, sizeof length);
  const int64_t most = std::min(kMaxHeaderBytes, mapped_bytes_ - kLengthBytes);
  if (length > static_cast<uint64_t>(most)) {
    return absl::DataLossError(
        absl::StrCat("0: found a header of ", length, " bytes, expected at most ", most));
  }
  data_offset_ = kLengthBytes + static_cast<int64_t>(length);
  const absl::string_view json(reinterpret_cast<const char*>(mapped_) + kLengthBytes, length);
  ASSIGN_OR_RETURN(header_, ParseSafetensorsHeader(json, mapped_bytes_ - data_offset_));
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
  return absl::OkStatus();
}

SafetensorsFile::~SafetensorsFile() {
  munmap(const_cast<uint8_t*>(mapped_), static_cast<size_t>(mapped_bytes_));
}

const StoredTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

void SafetensorsFile::Read(const StoredTensor& tensor, int64_t first, int64_t count,
                           float* out) const {
  CHECK(IsFloat(tensor));
  const int64_t width = DtypeBits(tensor.dtype) / 8;
  const int64_t elements = (tensor.end - tensor.begin) / width;
  CHECK(first >= 0 && count >= 0 && count <= elements && first <= elements - count);
  if (count == 0) return;
  // Bytes, not floats: a foreign header may leave the data at any alignment.
  const uint8_t* from = mapped_ + data_offset_ + tensor.begin + first * width;
  if (width == 4) {
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const bool is_half = tensor.dtype == "F16";
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + i * width, sizeof bits);
    out[i] = is_half ? FromHalf(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
  }
}

bool IsFloat(const StoredTensor& tensor) {
  return tensor.dtype == "F32" || tensor.dtype == "BF16" || tensor.dtype == "F16";
}

uint64_t NameKey(const std::string& name) {
  return XXH3_64bits(name.data(), name.size());
}

}  // namespace weft
