// weft completion: what a shell completes, out of the verbs' own options and the table of keys.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/commands/commands.h"
#include "plan/keys/job_keys.h"

namespace weft {
namespace {

std::vector<const CLI::App*> Verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string OptionsOf(const CLI::App& verb) {
  std::vector<std::string> options;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  return absl::StrJoin(options, " ");
}

// "    plan) options='--json --why' ;;", a line per verb.
std::string Cases(const CLI::App& app) {
  std::string text;
  for (const CLI::App* verb : Verbs(app)) {
    absl::StrAppend(&text, "    ", verb->get_name(), ") options='", OptionsOf(*verb), "' ;;\n");
  }
  return text;
}

std::string Keys() {
  std::vector<absl::string_view> keys;
  for (const JobKey& key : JobKeys()) keys.push_back(key.key);
  return absl::StrJoin(keys, " ");
}

std::string BashText(const CLI::App& app) {
  const std::string verbs = absl::StrJoin(
      Verbs(app), " ",
      [](std::string* text, const CLI::App* verb) { absl::StrAppend(text, verb->get_name()); });
  return absl::StrCat(R"(# Source this, or save it as /etc/bash_completion.d/weft.
_weft() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W ')",
                      verbs, " ", OptionsOf(app), R"(' -- "$word")
    return
  fi
  if [[ $before == --set ]]; then
    mapfile -t COMPREPLY < <(compgen -S = -W ')",
                      Keys(), R"(' -- "$word")
    compopt -o nospace 2>/dev/null
    return
  fi
  case ${COMP_WORDS[1]} in
)",
                      Cases(app), R"(  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _weft weft
)");
}

std::string ZshText(const CLI::App& app) {
  std::string verbs;
  for (const CLI::App* verb : Verbs(app)) {
    absl::StrAppend(&verbs, "    '", verb->get_name(), ":",
                    absl::StrReplaceAll(verb->get_description(), {{"'", "'\\''"}, {":", "\\:"}}),
                    "'\n");
  }
  return absl::StrCat(R"(#compdef weft
# Save this as _weft in a folder of $fpath.
_weft() {
  local -a verbs
  verbs=(
)",
                      verbs, R"(  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  if [[ ${words[CURRENT - 1]} == --set ]]; then
    compadd -S = -- )",
                      Keys(), R"(
    return
  fi
  local options=''
  case ${words[2]} in
)",
                      Cases(app), R"(  esac
  if [[ ${words[CURRENT]} == -* ]]; then
    compadd -- ${=options}
  else
    _files
  fi
}
compdef _weft weft
)");
}

}  // namespace

void AddCompletion(CLI::App& app, int* exit_code) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "print what completes weft in a shell");
  completion->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&app, shell, exit_code] {
    std::cout << (*shell == "bash" ? BashText(app) : ZshText(app));
    *exit_code = kExitOk;
  });
}

}  // namespace weft
