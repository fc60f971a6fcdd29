#include "launcher/kubernetes/manifest.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/hosts/ssh.h"
#include "launcher/slurm/batch_script.h"

namespace weft {
namespace {

constexpr int kPort = 7070;  // of weftd; a pod has a network of its own
constexpr size_t kLongestName = 40;
// weft itself counts failures (fault_tolerance.max_restarts); this ends pods that never begin.
constexpr int kBackoffLimit = 100;
constexpr char kPrograms[] = "/opt/weft/bin";
constexpr char kJobFolder[] = "/etc/weft/job";
constexpr char kBundleFolder[] = "/etc/weft/tls";

// YAML takes a double-quoted text whatever is in it. REQUIRES: no control characters.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Lines of a manifest, each with the indent of its place.
class Lines {
 public:
  explicit Lines(int indent = 0) : indent_(indent) {}

  void Add(absl::string_view line) {
    absl::StrAppend(&text_, std::string(static_cast<size_t>(indent_), ' '), line, "\n");
  }
  void AddValue(absl::string_view key, absl::string_view value) {
    if (!value.empty()) Add(absl::StrCat(key, ": ", Quoted(value)));
  }
  void AddMap(absl::string_view key, const std::map<std::string, std::string>& map) {
    if (map.empty()) return;
    Add(absl::StrCat(key, ":"));
    for (const auto& [name, value] : map) {
      Add(absl::StrCat("  ", Quoted(name), ": ", Quoted(value)));
    }
  }
  // A text of several lines, as it is.
  void AddText(absl::string_view key, absl::string_view text) {
    Add(absl::StrCat(key, ": |"));
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
      Add(line.empty() ? "" : absl::StrCat("  ", line));
    }
  }
  // All of `inner`, moved in.
  void AddLines(const std::string& inner) {
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(inner, "\n"), '\n')) {
      Add(line);
    }
  }
  const std::string& text() const { return text_; }

 private:
  const int indent_;
  std::string text_;
};

// A part of cluster.pod in one line, as any reader of YAML reads it back.
std::string FlowText(const PassedOn& part) {
  std::vector<std::string> inner;
  for (size_t i = 0; i < part.parts.size(); ++i) {
    const std::string name =
        part.kind == PassedOn::Kind::kMap ? absl::StrCat(Quoted(part.names[i]), ": ") : "";
    inner.push_back(name + FlowText(part.parts[i]));
  }
  switch (part.kind) {
    case PassedOn::Kind::kNothing:
      return "null";
    case PassedOn::Kind::kWord:
      return part.text;
    case PassedOn::Kind::kText:
      return Quoted(part.text);
    case PassedOn::Kind::kList:
      return absl::StrCat("[", absl::StrJoin(inner, ", "), "]");
    case PassedOn::Kind::kMap:
      return absl::StrCat("{", absl::StrJoin(inner, ", "), "}");
  }
  return "";
}

// A field of cluster.pod goes there in a manifest.
enum class PodPlace { kObject, kJob, kMetadata, kLabels, kSecurity, kSpec };

PodPlace PlaceOf(absl::string_view field) {
  constexpr std::pair<absl::string_view, PodPlace> kPlaces[] = {
      {"ownerReferences", PodPlace::kObject},
      {"ttlSecondsAfterFinished", PodPlace::kJob},
      {"annotations", PodPlace::kMetadata},
      {"labels", PodPlace::kLabels},
      {"fsGroup", PodPlace::kSecurity},
      {"fsGroupChangePolicy", PodPlace::kSecurity},
      {"supplementalGroups", PodPlace::kSecurity},
      {"runAsUser", PodPlace::kSecurity},
      {"runAsGroup", PodPlace::kSecurity}};
  for (const auto& [name, place] : kPlaces) {
    if (name == field) return place;
  }
  return PodPlace::kSpec;
}

// The lines of the fields that go there; of labels one each.
void AddPassedOn(const JobSpec& job, PodPlace place, absl::string_view indent, Lines* lines) {
  const PassedOn& pod = job.scheduler.pods.pod;
  for (size_t i = 0; i < pod.names.size(); ++i) {
    if (PlaceOf(pod.names[i]) != place) continue;
    const PassedOn& part = pod.parts[i];
    if (place != PodPlace::kLabels) {
      lines->Add(absl::StrCat(indent, pod.names[i], ": ", FlowText(part)));
      continue;
    }
    for (size_t label = 0; label < part.names.size(); ++label) {
      lines->Add(
          absl::StrCat(indent, Quoted(part.names[label]), ": ", FlowText(part.parts[label])));
    }
  }
}

std::string Program(const JobSpec& job) {
  return absl::StrCat(job.hosts.remote_path.empty() ? kPrograms : job.hosts.remote_path, "/weft");
}

std::string Head(const JobSpec& job, absl::string_view version, absl::string_view kind) {
  const std::string name = ObjectName(job.name);
  Lines lines;
  lines.Add(absl::StrCat("apiVersion: ", version));
  lines.Add(absl::StrCat("kind: ", kind));
  lines.Add("metadata:");
  lines.Add(absl::StrCat("  name: ", name));
  if (!job.scheduler.pods.name_space.empty()) {
    lines.Add(absl::StrCat("  namespace: ", Quoted(job.scheduler.pods.name_space)));
  }
  AddPassedOn(job, PodPlace::kObject, "  ", &lines);
  lines.Add("  labels:");
  lines.Add("    app.kubernetes.io/name: weft");
  lines.Add(absl::StrCat("    app.kubernetes.io/instance: ", name));
  return lines.text();
}

std::string BundleKey(int pod) {
  return absl::StrCat("pod-", pod, ".pem");
}

std::string SecretText(const JobSpec& job, const PodWords& words) {
  Lines lines;
  lines.AddLines(Head(job, "v1", "Secret"));
  lines.Add("type: Opaque");
  lines.Add("stringData:");
  Lines data(2);
  for (int pod = 0; pod < PodCount(job); ++pod) {
    const auto at = static_cast<size_t>(pod);
    data.AddText(BundleKey(pod), at < words.bundles.size()
                                     ? words.bundles[at]
                                     : "a key and a certificate, issued when it is submitted");
  }
  return lines.text() + data.text();
}

// Every pod runs this. A Secret's files are root's; weft takes a bundle that is its user's alone.
std::string PodScript(const JobSpec& job, const PodWords& words) {
  std::vector<std::string> hosts;
  for (int pod = 0; pod < PodCount(job); ++pod) hosts.push_back(PodName(job, pod));
  const std::string first = absl::StrCat(hosts[0], ".", ObjectName(job.name));
  const std::string prefix(absl::StripSuffix(hosts[0], "0"));
  const std::string program = ShellWord(Program(job));
  return absl::StrCat(
      "set -eu\n"
      "pod=\"$JOB_COMPLETION_INDEX\"\n"
      "umask 077\n"
      "cat ",
      kBundleFolder,
      "/pod-\"$pod\".pem > /tmp/weft.pem\n"
      "if [ \"$pod\" -eq 0 ]; then\n"
      "  mkdir -p ",
      ShellWord(words.run_folder), "\n  exec ", program, " run ", kJobFolder, "/job.yaml --hosts ",
      absl::StrJoin(hosts, ","), " --listen 0.0.0.0:", kPort,
      " --tls /tmp/weft.pem\n"
      "fi\n"
      "exec ",
      program, " agent --coordinator ", first, ":", kPort, " --tls /tmp/weft.pem --name ", prefix,
      "\"$pod\" --run-id ", ObjectName(job.name), "\n");
}

// The first pod is asked through weftd, the others by their agent's seat.
std::string ProbeScript(const JobSpec& job, const PodWords& words) {
  const std::string program = ShellWord(Program(job));
  const std::string prefix(absl::StripSuffix(PodName(job, 0), "0"));
  return absl::StrCat("if [ \"$JOB_COMPLETION_INDEX\" -eq 0 ]; then\n  exec ", program, " status ",
                      ShellWord(words.run_folder), "\nfi\nexec ", program, " agent --check --name ",
                      prefix, "\"$JOB_COMPLETION_INDEX\" --run-id ", ObjectName(job.name), "\n");
}

std::string ConfigText(const JobSpec& job, const PodWords& words) {
  Lines lines;
  lines.AddLines(Head(job, "v1", "ConfigMap"));
  lines.Add("data:");
  Lines data(2);
  data.AddText("pod.sh", PodScript(job, words));
  data.AddText("probe.sh", ProbeScript(job, words));
  data.AddText("job.yaml", words.job_text);
  return lines.text() + data.text();
}

// Pods have names from their first moment: an agent dials before weftd's pod is ready.
std::string ServiceText(const JobSpec& job) {
  Lines lines;
  lines.AddLines(Head(job, "v1", "Service"));
  lines.Add("spec:");
  lines.Add("  clusterIP: None");
  lines.Add("  publishNotReadyAddresses: true");
  lines.Add("  selector:");
  lines.Add("    app.kubernetes.io/name: weft");
  lines.Add(absl::StrCat("    app.kubernetes.io/instance: ", ObjectName(job.name)));
  lines.Add("  ports:");
  lines.Add(absl::StrCat("  - {name: weftd, port: ", kPort, "}"));
  return lines.text();
}

// Requests equal limits: a pod that has what it asks for is the last to be evicted.
std::map<std::string, std::string> ResourcesOf(const JobSpec& job, const Plan& plan) {
  std::map<std::string, std::string> resources = job.scheduler.pods.resources;
  const int slots = job.cluster.slots_per_node;
  if (job.cluster.device.backend == BackendKind::kCuda) {
    resources.emplace(job.scheduler.pods.gpu_resource, absl::StrCat(slots));
  } else {
    resources.emplace("cpu", absl::StrCat(slots * job.threads_per_worker));
    resources.emplace("memory", absl::StrCat(NodeMebibytes(job, plan), "Mi"));
  }
  return resources;
}

std::string ProbesText() {
  const std::string exec =
      absl::StrCat("  exec: {command: [\"/bin/sh\", \"", kJobFolder, "/probe.sh\"]}");
  Lines lines;
  struct Probe {
    absl::string_view name;
    int period_s, failures;
  };
  constexpr Probe kProbes[] = {
      {"startupProbe", 5, 720},  // others are not placed yet, or an image is on its way
      {"readinessProbe", 10, 3},
      {"livenessProbe", 30, 10},  // leases notice what hangs; this is for what they cannot see
  };
  for (const Probe& probe : kProbes) {
    lines.Add(absl::StrCat(probe.name, ":"));
    lines.Add(exec);
    lines.Add(absl::StrCat("  periodSeconds: ", probe.period_s));
    lines.Add(absl::StrCat("  failureThreshold: ", probe.failures));
    lines.Add("  timeoutSeconds: 20");
  }
  return lines.text();
}

std::string ContainerText(const JobSpec& job, const Plan& plan) {
  Lines lines;
  lines.AddValue("- name", "weft");
  Lines more(2);
  more.AddValue("image", job.scheduler.pods.image);
  more.Add(absl::StrCat("command: [\"/bin/sh\", \"", kJobFolder, "/pod.sh\"]"));
  more.Add("ports:");
  more.Add(absl::StrCat("- {name: weftd, containerPort: ", kPort, "}"));
  more.Add("resources:");
  Lines resources(2);
  resources.AddMap("requests", ResourcesOf(job, plan));
  resources.AddMap("limits", ResourcesOf(job, plan));
  more.AddLines(resources.text());
  more.AddLines(ProbesText());
  more.Add("lifecycle:");
  more.Add("  preStop:");
  more.Add("    exec: {command: [\"/bin/sh\", \"-c\", \"kill -USR2 1\"]}");
  more.Add("securityContext:");
  more.Add("  allowPrivilegeEscalation: false");
  more.Add("  capabilities: {drop: [\"ALL\"]}");
  more.Add("volumeMounts:");
  more.Add(absl::StrCat("- {name: job, mountPath: ", kJobFolder, ", readOnly: true}"));
  more.Add(absl::StrCat("- {name: tls, mountPath: ", kBundleFolder, ", readOnly: true}"));
  more.Add(absl::StrCat("- {name: data, mountPath: ", Quoted(job.scheduler.pods.volume_path), "}"));
  more.Add("- {name: shm, mountPath: /dev/shm}");
  more.Add("- {name: tmp, mountPath: /tmp}");
  return lines.text() + more.text();
}

std::string TemplateText(const JobSpec& job, const Plan& plan, const PodWords& words) {
  const PodsSpec& pods = job.scheduler.pods;
  const std::string name = ObjectName(job.name);
  Lines lines;
  lines.Add("metadata:");
  AddPassedOn(job, PodPlace::kMetadata, "  ", &lines);
  lines.Add("  labels:");
  lines.Add("    app.kubernetes.io/name: weft");
  lines.Add(absl::StrCat("    app.kubernetes.io/instance: ", name));
  AddPassedOn(job, PodPlace::kLabels, "    ", &lines);
  lines.Add("spec:");
  Lines spec(2);
  spec.Add("restartPolicy: Never");
  if (!pods.jobset) spec.Add(absl::StrCat("subdomain: ", name));  // a JobSet sets it
  spec.Add("automountServiceAccountToken: false");
  spec.Add("enableServiceLinks: false");
  spec.Add(absl::StrCat("terminationGracePeriodSeconds: ",
                        NoticeSeconds(plan.time.total_s(), words.save_s, job.scheduler.time)));
  spec.AddValue("priorityClassName", pods.priority_class);
  spec.AddValue("runtimeClassName", pods.runtime_class);
  spec.AddMap("nodeSelector", pods.node_selector);
  AddPassedOn(job, PodPlace::kSpec, "", &spec);
  spec.Add("securityContext:");
  spec.Add("  runAsNonRoot: true");
  AddPassedOn(job, PodPlace::kSecurity, "  ", &spec);
  spec.Add("  seccompProfile: {type: RuntimeDefault}");
  spec.Add("containers:");
  spec.AddLines(ContainerText(job, plan));
  spec.Add("volumes:");
  spec.Add(absl::StrCat("- {name: job, configMap: {name: ", name, "}}"));
  // 292 is 0444: nobody but weft is in a pod, and its user is the image's.
  spec.Add(absl::StrCat("- {name: tls, secret: {secretName: ", name, ", defaultMode: 292}}"));
  spec.Add(absl::StrCat("- {name: data, persistentVolumeClaim: {claimName: ", Quoted(pods.volume),
                        "}}"));
  spec.Add("- {name: shm, emptyDir: {medium: Memory}}");
  spec.Add("- {name: tmp, emptyDir: {}}");
  return lines.text() + spec.text();
}

// The first pod's end is the job's. Pods that a node takes along, and those that say "try again",
// are replaced; what cannot end otherwise the next time ends the job.
std::string JobSpecText(const JobSpec& job, const Plan& plan, const PodWords& words) {
  Lines lines;
  lines.Add("completionMode: Indexed");
  lines.Add(absl::StrCat("completions: ", PodCount(job)));
  lines.Add(absl::StrCat("parallelism: ", PodCount(job)));
  lines.Add(absl::StrCat("backoffLimit: ", kBackoffLimit));
  const int64_t limit_s = LimitSeconds(job.scheduler.time);
  if (limit_s > 0) lines.Add(absl::StrCat("activeDeadlineSeconds: ", limit_s));
  lines.Add("podReplacementPolicy: Failed");
  lines.Add("successPolicy:");
  lines.Add("  rules:");
  lines.Add("  - succeededIndexes: \"0\"");
  lines.Add("podFailurePolicy:");
  lines.Add("  rules:");
  lines.Add("  - action: Ignore");
  lines.Add("    onPodConditions: [{type: DisruptionTarget, status: \"True\"}]");
  lines.Add("  - action: Ignore");
  lines.Add("    onExitCodes: {containerName: weft, operator: In, values: [75]}");
  lines.Add("  - action: FailJob");
  lines.Add("    onExitCodes: {containerName: weft, operator: In, values: [1, 2, 3, 130]}");
  lines.Add("template:");
  Lines inner(2);
  inner.AddLines(TemplateText(job, plan, words));
  return lines.text() + inner.text();
}

std::string WorkloadText(const JobSpec& job, const Plan& plan, const PodWords& words) {
  const PodsSpec& pods = job.scheduler.pods;
  Lines lines;
  lines.AddLines(Head(job, pods.jobset ? "jobset.x-k8s.io/v1alpha2" : "batch/v1",
                      pods.jobset ? "JobSet" : "Job"));
  if (!pods.queue.empty()) {
    lines.Add(absl::StrCat("    kueue.x-k8s.io/queue-name: ", Quoted(pods.queue)));
  }
  lines.Add("spec:");
  Lines spec(2);
  AddPassedOn(job, PodPlace::kJob, "", &spec);
  if (pods.jobset) {
    spec.Add("network:");
    spec.Add("  enableDNSHostnames: true");
    spec.Add(absl::StrCat("  subdomain: ", ObjectName(job.name)));
    spec.Add("  publishNotReadyAddresses: true");
    spec.Add("successPolicy: {operator: All}");
    spec.Add("failurePolicy: {maxRestarts: 0}");
    spec.Add("replicatedJobs:");
    spec.Add("- name: pods");
    spec.Add("  replicas: 1");
    spec.Add("  template:");
    spec.Add("    spec:");
    Lines inner(6);
    inner.AddLines(JobSpecText(job, plan, words));
    spec.AddLines(inner.text());
  } else {
    spec.AddLines(JobSpecText(job, plan, words));
  }
  return lines.text() + spec.text();
}

}  // namespace

int PodCount(const JobSpec& job) {
  return job.cluster.nodes + job.hosts.spares;
}

std::string ObjectName(absl::string_view job_name) {
  std::string name;
  for (const char c : job_name) {
    const auto byte = static_cast<unsigned char>(c);
    name += absl::ascii_isalnum(byte) ? absl::ascii_tolower(byte) : '-';
  }
  name = name.substr(0, kLongestName);
  while (!name.empty() && name.back() == '-') name.pop_back();
  while (!name.empty() && name.front() == '-') name.erase(0, 1);
  // A service's name begins with a letter.
  return !name.empty() && absl::ascii_isalpha(static_cast<unsigned char>(name.front()))
             ? name
             : absl::StrCat("weft-", name.empty() ? "job" : name);
}

std::string PodName(const JobSpec& job, int index) {
  return absl::StrCat(ObjectName(job.name), job.scheduler.pods.jobset ? "-pods-0-" : "-", index);
}

absl::string_view ObjectKind(const JobSpec& job) {
  return job.scheduler.pods.jobset ? "jobset" : "job";
}

absl::Status CheckPodPaths(const JobSpec& job) {
  std::vector<std::pair<std::string, std::string>> paths = {{"job.output_dir", job.output_dir}};
  for (const DataSource& source : job.data.train) paths.emplace_back("data.train", source.path);
  for (const DataSource& source : job.data.valid) paths.emplace_back("data.valid", source.path);
  if (!job.init_from.empty()) paths.emplace_back("model.init_from", job.init_from);
  if (absl::StartsWith(job.checkpoint.folder, "/")) {
    paths.emplace_back("checkpoint.folder", job.checkpoint.folder);
  }
  const std::string volume(absl::StripSuffix(job.scheduler.pods.volume_path, "/"));
  for (const auto& [key, path] : paths) {
    if (path == volume || absl::StartsWith(path, volume + "/")) continue;
    return absl::InvalidArgumentError(absl::StrCat(key, ": ", path,
                                                   " is not on the pods' volume; name a path in ",
                                                   volume, " (cluster.volume_path)"));
  }
  return absl::OkStatus();
}

std::string PodsManifest(const JobSpec& job, const Plan& plan, const PodWords& words) {
  std::vector<std::string> objects = {SecretText(job, words), ConfigText(job, words)};
  if (!job.scheduler.pods.jobset) objects.push_back(ServiceText(job));  // a JobSet makes its own
  objects.push_back(WorkloadText(job, plan, words));
  return absl::StrJoin(objects, "---\n");
}

}  // namespace weft
