#include "launcher/commands/host_options.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "launcher/hosts/ssh.h"

namespace weft {

void AddHostNames(CLI::App& app, HostWords* words) {
  app.add_option("--hosts", words->hosts, "hosts to train on: a,b:SLOTS,user@c; by ssh");
  app.add_option("--hostfile", words->hostfile, "a file of them, as Open MPI's or DeepSpeed's");
  app.add_option("--include", words->include, "of them only these: host@host:0,2");
  app.add_option("--exclude", words->exclude, "of them not these: host@host:0,2");
}

void AddHostOptions(CLI::App& app, HostArguments* arguments) {
  AddHostNames(app, &arguments->words);
  app.add_option("-x", arguments->variables,
                 "pass a variable to every host: -x NAME, or -x NAME=VALUE")
      ->allow_extra_args(false);
}

std::string OptionsText(const HostArguments& arguments) {
  const HostWords& words = arguments.words;
  std::string text;
  for (const auto& [option, value] : {std::pair("--hosts", &words.hosts),
                                      {"--hostfile", &words.hostfile},
                                      {"--include", &words.include},
                                      {"--exclude", &words.exclude}}) {
    if (!value->empty()) absl::StrAppend(&text, " ", option, " ", ShellWord(*value));
  }
  for (const std::string& variable : arguments.variables) {
    absl::StrAppend(&text, " -x ", ShellWord(variable));
  }
  return text;
}

absl::StatusOr<std::vector<ListedHost>> HostsOf(HostWords words) {
  const bool named = !words.hosts.empty() || !words.hostfile.empty();
  if (!named) {
    if (words.include.empty() && words.exclude.empty()) return std::vector<ListedHost>();
    return absl::InvalidArgumentError(
        "--include and --exclude choose among hosts; name them by --hosts or --hostfile");
  }
  if (!words.hostfile.empty()) {
    absl::StatusOr<std::string> text = ReadWholeFile(words.hostfile, kMostSpecBytes);
    if (!text.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--hostfile ", text.status().message()));
    }
    words.hostfile_text = *std::move(text);
  }
  return ListHosts(words);
}

void TakeNamedHosts(const std::vector<ListedHost>& hosts, JobFileOptions* options) {
  options->named_hosts = static_cast<int>(hosts.size());
  for (const ListedHost& host : hosts) {
    const int slots = UsedSlotCount(host);
    const bool fewer = options->named_slots == 0 || slots < options->named_slots;
    if (slots > 0 && fewer) options->named_slots = slots;
    options->unsaid_slots |= slots == 0;
  }
}

absl::StatusOr<std::map<std::string, std::string>> VariablesOf(const HostArguments& arguments) {
  std::map<std::string, std::string> variables;
  for (const std::string& text : arguments.variables) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.empty() || absl::StartsWith(name, "WEFT_")) {
      return absl::InvalidArgumentError(
          absl::StrCat("-x ", text, ": ", name.empty() ? "names no variable" : "is weft's own"));
    }
    if (equals != std::string::npos) {
      variables[name] = text.substr(equals + 1);
      continue;
    }
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("-x ", name, ": is not set here; set it, or write -x ", name, "=VALUE"));
    }
    variables[name] = value;
  }
  return variables;
}

}  // namespace weft
