// Texts that data.train and data.valid name: they become files of tokens in a cache, and the job is
// one of those files (data/prepare/token_cache.h). training.epochs becomes steps then, as samples
// can be counted.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"
#include "plan/keys/value.h"
#include "plan/keys/value_reader.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Returns the absolute path that a key names; a model that is named as on the Hub and lies in
// transformers' cache is there. Nothing need be there: a run that has checkpoints needs its
// model.init_from no more. nullopt: the key is not given.
std::optional<std::string> ModelPathAt(const ValueReader& values, absl::string_view key,
                                       const std::string& job_folder);

// Says whether the model that a key names, which is needed now, is there or may be: an issue, with
// the command that fetches it, where it is a name of the Hub's and not in the cache.
bool CheckModelAt(const ValueReader& values, absl::string_view key, const std::string& job_folder);

// Returns the path of data.tokenizer, or of the folder that model.path or model.init_from names, if
// a tokenizer lies in it; empty: there is none.
std::string TokenizerOf(const ValueReader& values, const std::string& job_folder);

struct TextDataOptions {
  std::string job_folder;
  std::string tokenizer;  // TokenizerOf
  int64_t vocab_size = 0;
  bool check_files = true;  // false: the texts need not be here
  // Texts are tokenised; else only those count that have been. What cannot be known here of the job
  // has been judged before.
  bool may_work = false;
  std::function<void(const PrepareProgress&)> on_tokens = {};
  int threads = 1;
};

// Replaces the texts of section `data`, where its format is kTextByName or a word of TextFormat, by
// their tokens. Returns
// false if there are none yet. `values`: of the whole job file.
bool TokeniseData(const TextDataOptions& options, const ValueReader& values, Value* data,
                  Issues* issues, std::vector<std::string>* notes);

// Puts a number at training.steps where training.epochs is given; returns whether it is.
bool PutStepsOfEpochs(const ValueReader& values, Value* root);

// Returns the steps that read so many epochs of `windows` samples; the last one may read more.
int64_t StepsOfEpochs(double epochs, int64_t windows, int64_t global_batch_size);

// Settles training.steps by training.epochs. `has_tokens`: the data can be counted; else a note
// says what is assumed, and false is returned.
bool SettleEpochs(const ValueReader& values, bool has_tokens, JobSpec* job,
                  std::vector<std::string>* notes);

}  // namespace weft
