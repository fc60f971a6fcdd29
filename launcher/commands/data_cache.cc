// weft data cache: the tokens of a job's texts, in the cache of the host where it is called. A job
// on several hosts whose cache is each host's own has them made so before it starts.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "launcher/commands/commands.h"
#include "launcher/commands/prepare_progress.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/machine/machine.h"

namespace weft {
namespace {

struct CacheArguments {
  std::string path;
  JobFileOptions options;
};

int DataCache(const CacheArguments& arguments) {
  JobFileOptions options = arguments.options;
  absl::StatusOr<JobFile> file = ReadJobFile(arguments.path, options);
  if (file.ok() && !file->has_tokens) {
    options.on_tokens = ShowPrepareProgress();
    options.token_threads = UsableCores();
    file = ReadJobFile(arguments.path, options);
  }
  if (!file.ok()) return FailJobFile(file.status());
  for (const std::string& note : file->notes) std::cerr << "note: " << note << "\n";
  for (const auto* sources : {&file->job.data.train, &file->job.data.valid}) {
    for (const DataSource& source : *sources) std::cout << source.path << "\n";
  }
  return kExitOk;
}

}  // namespace

void AddDataCache(CLI::App& data, int* exit_code) {
  const auto arguments = std::make_shared<CacheArguments>();
  CLI::App* cache = data.add_subcommand(
      "cache", "tokenise the texts of a job into this host's cache, and print the files");
  cache->add_option("job", arguments->path, "the job file")->required();
  cache->add_option("--set", arguments->options.sets,
                    "replace a key: --set data.cache=/scratch/me");
  cache->callback([arguments, exit_code] { *exit_code = DataCache(*arguments); });
}

}  // namespace weft
