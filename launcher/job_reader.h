// The tree of a job file -> JobSpec: every key of job_keys.h, by section. Issues have their place;
// what the values mean together is Validate's. Pure but for the files that the job names.
#pragma once
#include <string>
#include <vector>

#include "launcher/yaml_tree.h"
#include "plan/job_spec.h"

namespace weft {

// `root`: aliases renamed, --set applied, no unknown keys. `folder`: of the job file.
// `check_files`: whether data files have to be on this machine.
JobSpec ReadJob(const YamlNode& root, const std::string& folder, bool check_files, Issues* issues,
                std::vector<std::string>* notes);

// Absolute, of a path that is relative to `folder`; one spelling of each, so without a slash at the
// end (`output_dir: .`): a run's id is made of it.
std::string AbsolutePath(const std::string& path, const std::string& folder);

}  // namespace weft
