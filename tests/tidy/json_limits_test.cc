// The page for administrators lists all JSON that weft reads with the bytes that may be read of it,
// and the code has no other reader and no other limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.h"

namespace weft {
namespace {

constexpr char kDefaultLimit[] = "kMostJsonBytes";
constexpr char kTrusted[] = "";  // a program of weft's own answers, or it is a text of this process

// A JsonRow is a kind of text that a source file reads by one limit, as the page calls it.
struct JsonRow {
  std::string source;
  std::string limit;
  std::string words;
};

const std::vector<JsonRow>& Rows() {
  static const auto* const rows = new std::vector<JsonRow>{
      {"launcher/job_file/model_config.cc", "kMostSpecBytes",
       "`config.json` and `generation_config.json` of a model"},
      {"data/text_ends.cc", "kMostSpecBytes",
       "`config.json` and `generation_config.json` of a model"},
      {"launcher/inference/export_form.cc", "kMostSpecBytes",
       "`config.json` and `generation_config.json` of a model"},
      {"checkpoint/huggingface_reader.cc", "kMostIndexBytes", "`model.safetensors.index.json`"},
      {"checkpoint/safetensors.cc", "kMaxHeaderBytes", "the header of a `.safetensors` file"},
      {"checkpoint/manifest.cc", "kMostManifestBytes", "`manifest.json` of a checkpoint"},
      {"checkpoint/folders.cc", kDefaultLimit, "a line of it, where its owner alone is wanted"},
      {"data/tokenizer/json_text.cc", "kMostIndexBytes",
       "`tokenizer.json`, `tekken.json`, `vocab.json`"},
      {"data/tokenizer/json_text.cc", "kMostIndexBytes",
       "`tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`"},
      {"data/prepare/chunk_encoder.cc", "kMostRowBytes", "a row of JSON lines that are prepared"},
      {"data/prepare/prepared.cc", "kMostJobTextBytes", kTrusted},
      {"data/prepare/token_cache.cc", "kMostJobTextBytes", kTrusted},
      {"data/prepare/prepared_files.cc", "kMostJobTextBytes", kTrusted},
      {"text/json_lines.cc", kDefaultLimit,
       "a line of `events.jsonl`, `metrics.jsonl` or the ledger"},
      {"launcher/commands/slurm_verbs.cc", kDefaultLimit, "the last line of `metrics.jsonl`"},
      {"launcher/slurm/run_record.cc", "kMostBytes", "`slurm.json` of a run"},
      {"launcher/batch/batch_hosts.cc", "kMostResourceBytes", "`R` of Flux"},
      {"launcher/machine/calibration.cc", "kMostLinksBytes", "`links.json`"},
      {"launcher/standing/standing_records.cc", kDefaultLimit,
       "`allocation-<n>.json` of a standing agent"},
      {"proto/job_text.cc", "kMostJobTextBytes", "`Submission.job`"},
      {"proto/job_text.cc", kDefaultLimit, "a value in it that is text"},
      {"worker/process/inference_session.cc", "kMostRequestBytes", kTrusted},
      {"checkpoint/model_json.cc", kDefaultLimit, kTrusted},
      {"launcher/machine/calibration.cc", kDefaultLimit, kTrusted},
      {"launcher/machine/doctor.cc", kDefaultLimit, kTrusted},
      {"launcher/inference/export_form.cc", kDefaultLimit, kTrusted},
      {"launcher/inference/inference_run.cc", kDefaultLimit, kTrusted},
      {"launcher/job_file/job_schema.cc", kDefaultLimit, kTrusted},
      {"launcher/commands/calibrate.cc", kDefaultLimit, kTrusted}};
  return *rows;
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(SourcePath("/" + path)).rdbuf();
  return text.str();
}

// "int64_t{64} << 20", "1 << 20", "100'000'000".
std::optional<int64_t> ValueOf(const std::string& text, const std::string& name) {
  const std::regex constant("constexpr int64_t " + name +
                            " = (?:int64_t\\{(\\d+)\\}|([\\d']+))(?: << (\\d+))?;");
  std::smatch found;
  if (!std::regex_search(text, found, constant)) return std::nullopt;
  std::string digits = found[1].matched ? found[1] : found[2];
  digits.erase(std::remove(digits.begin(), digits.end(), '\''), digits.end());
  return std::stoll(digits) << (found[3].matched ? std::stoi(found[3]) : 0);
}

// A constant of the source itself, or of one of those that have limits for several.
int64_t LimitOf(const JsonRow& row) {
  for (const std::string& path :
       {row.source, std::string("text/json.h"), std::string("data/whole_file.h"),
        std::string("checkpoint/manifest.h"), std::string("data/prepare/chunk_reader.h"),
        std::string("launcher/machine/calibration.h")}) {
    if (const std::optional<int64_t> value = ValueOf(TextOf(path), row.limit)) return *value;
  }
  ADD_FAILURE() << row.source << ": nobody says what " << row.limit << " is";
  return 0;
}

std::string SizeText(int64_t bytes) {
  const int64_t mib = int64_t{1} << 20;
  return bytes % mib == 0 ? std::to_string(bytes / mib) + " MiB" : std::to_string(bytes) + " bytes";
}

using Reader = std::pair<std::string, std::string>;  // source, limit

std::set<Reader> ReadersInTheTree() {
  std::set<Reader> readers;
  const std::regex call(R"(Parse(?:Ordered)?Json\()");
  const std::regex limit(R"(\.most_bytes = (\w+))");
  for (const char* room : {"checkpoint", "coordinator", "data", "launcher", "plan", "process",
                           "proto", "text", "worker"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(SourcePath(std::string("/") + room))) {
      const std::string path =
          std::filesystem::relative(entry.path(), SourcePath()).generic_string();
      if (entry.path().extension() != ".cc" || path == "text/json.cc") continue;
      const std::string text = TextOf(path);
      for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) {
        const std::string rest = text.substr(static_cast<size_t>(at->position()), 160);
        const std::string statement = rest.substr(0, rest.find(';'));
        std::smatch said;
        const bool is_said = std::regex_search(statement, said, limit);
        readers.insert({path, is_said ? said[1].str() : kDefaultLimit});
      }
    }
  }
  return readers;
}

TEST(JsonLimits, AreListedForEachReader) {
  std::set<Reader> listed;
  for (const JsonRow& row : Rows()) listed.insert({row.source, row.limit});
  for (const Reader& reader : ReadersInTheTree()) {
    EXPECT_EQ(listed.erase(reader), 1u)
        << reader.first << " reads JSON by " << reader.second
        << ": have it in this test, and on docs/admin.md if others write that JSON";
  }
  for (const Reader& reader : listed) {
    ADD_FAILURE() << reader.first << " does not read JSON by " << reader.second << " any more";
  }
}

TEST(JsonLimits, AreThoseOfThePage) {
  const std::string page = TextOf("docs/admin.md");
  const size_t begin = page.find("\n## JSON that weft reads\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string section = page.substr(begin, page.find("\n## ", begin + 4) - begin);
  std::set<std::string> wanted;
  for (const JsonRow& row : Rows()) {
    if (row.words.empty()) continue;
    wanted.insert("| " + row.words + " | " + SizeText(LimitOf(row)) + " |");
  }
  std::set<std::string> found;
  std::istringstream lines(section);
  for (std::string line; std::getline(lines, line);) {
    const bool is_row = line.rfind("| ", 0) == 0 && line.find(" | most |") == std::string::npos;
    if (is_row) found.insert(line);
  }
  EXPECT_EQ(found, wanted);
  const std::string json = TextOf("text/json.h");
  std::smatch depth;
  ASSERT_TRUE(std::regex_search(json, depth, std::regex(R"(int most_depth = (\d+);)")));
  EXPECT_NE(section.find("nested deeper than " + depth[1].str()), std::string::npos);
  EXPECT_EQ(ReadersInTheTree().count({"text/json_lines.cc", kDefaultLimit}), 1u);
}

}  // namespace
}  // namespace weft
