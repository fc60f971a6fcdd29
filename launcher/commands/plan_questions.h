// The questions that `weft plan` answers beside "what would run": why not that layout, what is this
// one like. Each prints its answer and returns an exit code.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_list.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/search/plan.h"
#include "plan/search/space.h"

namespace weft {

struct PlanArguments {
  HostWords host_words;
  std::vector<ListedHost> hosts = {};  // as the words say
  std::string path;
  JobFileOptions options;
  bool json = false;
  bool without_data = false;
  int explain = 5;
  int without_nodes = 0;
  std::optional<std::string> why;
  std::optional<std::string> layout;
  std::vector<std::string> parts = {};  // "h100x8:32"
  std::string engine;
  std::string svg;
};

// The plan for what the job asks: of what weft can run if it can run the job at all.
int AnswerPlan(const PlanArguments& arguments, JobFile file);
// --layout: memory and time of exactly that layout, fitting or not. REQUIRES: it is given.
int AnswerLayout(const PlanArguments& arguments, JobFile file);
// --parts: the plan over several kinds of devices. REQUIRES: they are given.
int AnswerParts(const PlanArguments& arguments, const JobFile& file);
// --why: the plan under these values beside the plan without them, term by term, or as JSON.
// REQUIRES: it is given.
int AnswerWhy(const PlanArguments& arguments, const JobFile& file);

}  // namespace weft
