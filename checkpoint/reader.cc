#include "checkpoint/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checkpoint/verify.h"
#include "plan/errors.h"

namespace weft {
namespace {

// "3,4" or "" (no dims); nullopt for anything else.
std::optional<std::vector<int64_t>> ParseDims(absl::string_view text) {
  std::vector<int64_t> dims;
  if (text.empty()) return dims;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim < 0) return std::nullopt;
    dims.push_back(dim);
  }
  return dims;
}

struct NamedBox {
  std::string tensor;
  Box box;
};

// The inverse of BoxName; nullopt for any other text.
std::optional<NamedBox> ParseBoxName(const std::string& name) {
  const size_t open = name.rfind('[');
  if (open == std::string::npos || name.back() != ']') return std::nullopt;
  NamedBox named;
  named.tensor = name.substr(0, open);
  const absl::string_view ranges = absl::string_view(name).substr(open + 1, name.size() - open - 2);
  if (ranges.empty()) return named;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, ':');
    int64_t begin = 0;
    int64_t end = 0;
    if (!absl::SimpleAtoi(ends.first, &begin) || !absl::SimpleAtoi(ends.second, &end) ||
        begin < 0 || end < begin) {
      return std::nullopt;
    }
    named.box.begin.push_back(begin);
    named.box.end.push_back(end);
  }
  // Only the one spelling that BoxName gives: "+1" and "01" are numbers, too.
  if (BoxName(named.tensor, named.box) != name) return std::nullopt;
  return named;
}

bool LiesIn(const Box& box, absl::Span<const int64_t> dims) {
  if (box.begin.size() != dims.size() || box.end.size() != dims.size()) return false;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (box.begin[d] < 0 || box.end[d] < box.begin[d] || box.end[d] > dims[d]) return false;
  }
  return true;
}

std::vector<int64_t> Lengths(const Box& box) {
  std::vector<int64_t> lengths;
  for (size_t d = 0; d < box.begin.size(); ++d) lengths.push_back(box.end[d] - box.begin[d]);
  return lengths;
}

int64_t Elements(const Box& box) {
  int64_t elements = 1;
  for (const int64_t length : Lengths(box)) elements *= length;
  return elements;
}

Box Common(const Box& a, const Box& b) {
  Box common = a;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    common.begin[d] = std::max(a.begin[d], b.begin[d]);
    common.end[d] = std::max(common.begin[d], std::min(a.end[d], b.end[d]));
  }
  return common;
}

// Flat index of `at` in a row-major box.
int64_t FlatIndex(const Box& box, const std::vector<int64_t>& at) {
  int64_t flat = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    flat = flat * (box.end[d] - box.begin[d]) + (at[d] - box.begin[d]);
  }
  return flat;
}

// Copies `common` from the piece that holds `from` into `out`, a row-major `to`: row by row, a row
// being the last dim.
void CopyBox(const SafetensorsFile& file, const StoredTensor& stored, const Box& from,
             const Box& to, const Box& common, float* out) {
  if (Elements(common) == 0) return;
  if (common.begin.empty()) {
    file.Read(stored, 0, 1, out);
    return;
  }
  const size_t last = common.begin.size() - 1;
  const int64_t row = common.end[last] - common.begin[last];
  std::vector<int64_t> at = common.begin;
  while (true) {
    file.Read(stored, FlatIndex(from, at), row, out + FlatIndex(to, at));
    size_t d = last;  // the dim to count up is the last one before `last` with room
    while (d > 0 && ++at[d - 1] == common.end[d - 1]) {
      at[d - 1] = common.begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace

std::string BoxName(absl::string_view tensor, const Box& box) {
  std::string ranges;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    absl::StrAppend(&ranges, d == 0 ? "" : ",", box.begin[d], ":", box.end[d]);
  }
  return absl::StrCat(tensor, "[", ranges, "]");
}

std::vector<Box> WithoutBox(const Box& box, const Box& hole) {
  const Box common = Common(box, hole);
  if (Elements(common) == 0) return {box};
  std::vector<Box> rest;
  Box middle = box;  // shrinks dim by dim to `common`; what is cut off is kept
  for (size_t d = 0; d < box.begin.size(); ++d) {
    if (middle.begin[d] < common.begin[d]) {
      rest.push_back(middle);
      rest.back().end[d] = common.begin[d];
    }
    if (common.end[d] < middle.end[d]) {
      rest.push_back(middle);
      rest.back().begin[d] = common.end[d];
    }
    middle.begin[d] = common.begin[d];
    middle.end[d] = common.end[d];
  }
  return rest;
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& step_folder,
                                                        const Manifest& manifest) {
  CheckpointReader reader;
  reader.step_folder_ = step_folder;
  reader.manifest_ = manifest;
  for (const ShardRecord& record : manifest.shards) {
    const std::string path = absl::StrCat(step_folder, "/", record.file);
    auto shard = std::make_unique<Shard>();
    shard->record = record;
    const absl::Status opened = reader.OpenShard(path, shard.get());
    if (!opened.ok()) {
      // The damage is said first; what reads oddly because of it is no news.
      RETURN_IF_ERROR(VerifyShard(step_folder, record));
      return opened;
    }
    reader.shards_.push_back(std::move(shard));
  }
  return reader;
}

absl::Status CheckpointReader::OpenShard(const std::string& path, Shard* shard) {
  ASSIGN_OR_RETURN(shard->file, SafetensorsFile::Open(path));
  const absl::Status added = AddBoxes(shard);
  return added.ok() ? added : absl::Status(added.code(), absl::StrCat(path, ": ", added.message()));
}

absl::Status CheckpointReader::Verify(Shard* shard) const {
  std::call_once(shard->once, [&] { shard->verified = VerifyShard(step_folder_, shard->record); });
  return shard->verified;
}

absl::Status CheckpointReader::AddBoxes(Shard* shard) {
  const SafetensorsFile& file = *shard->file;
  for (const StoredTensor& stored : file.tensors()) {
    const auto named = ParseBoxName(stored.name);
    if (!named || stored.dtype != "F32" || stored.dims != Lengths(named->box)) {
      return absl::DataLossError(absl::StrCat("found tensor '", stored.name, "' of ", stored.dtype,
                                              " [", absl::StrJoin(stored.dims, ","),
                                              "], expected an F32 box named by its ranges"));
    }
    const auto dims_text = file.metadata().find(named->tensor);
    const auto dims =
        dims_text == file.metadata().end() ? std::nullopt : ParseDims(dims_text->second);
    if (!dims || !LiesIn(named->box, *dims)) {
      return absl::DataLossError(absl::StrCat(
          "found box '", stored.name, "', expected one within the dims that the metadata states"));
    }
    GlobalTensor& tensor =
        tensors_.try_emplace(named->tensor, GlobalTensor{*dims, {}}).first->second;
    if (tensor.dims != *dims) {
      return absl::DataLossError(
          absl::StrCat("found dims [", absl::StrJoin(*dims, ","), "] of '", named->tensor,
                       "', expected [", absl::StrJoin(tensor.dims, ","), "] as in another shard"));
    }
    tensor.pieces.push_back({shard, &stored, named->box});
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Read(const std::string& name, absl::Span<const int64_t> dims,
                                    absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                                    absl::Span<float> out) const {
  const Box wanted{{begin.begin(), begin.end()}, {end.begin(), end.end()}};
  CHECK(LiesIn(wanted, dims));
  CHECK(Elements(wanted) == std::ssize(out));
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(
        absl::StrCat("step-", manifest_.step, ": holds no tensor '", name, "'"));
  }
  if (dims != absl::MakeConstSpan(found->second.dims)) {
    return absl::DataLossError(absl::StrCat("step-", manifest_.step, ": tensor '", name, "' is [",
                                            absl::StrJoin(found->second.dims, ","), "], expected [",
                                            absl::StrJoin(dims, ","), "]"));
  }
  std::vector<Box> missing;
  if (Elements(wanted) > 0) missing.push_back(wanted);
  for (const Piece& piece : found->second.pieces) {
    std::vector<Box> still_missing;
    for (const Box& part : missing) {
      const Box common = Common(part, piece.box);
      if (Elements(common) > 0) RETURN_IF_ERROR(Verify(piece.shard));
      CopyBox(*piece.shard->file, *piece.stored, piece.box, wanted, common, out.data());
      for (Box& rest : WithoutBox(part, piece.box)) still_missing.push_back(std::move(rest));
    }
    missing = std::move(still_missing);
    if (missing.empty()) return absl::OkStatus();
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("step-", manifest_.step, ": no shard holds ", BoxName(name, missing.front())));
}

}  // namespace weft
