#include "launcher/hosts/host_list.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

constexpr int kMostSlots = 4096;       // of a host
constexpr size_t kMostHosts = 100000;  // a file that is none ends here

// Whatever stands here becomes an argument of ssh: nothing that begins with a dash.
bool IsName(absl::string_view name, absl::string_view besides) {
  if (name.empty() || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           besides.find(c) != absl::string_view::npos;
  });
}

std::optional<int> Number(absl::string_view text, int least, int most) {
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) return std::nullopt;
  return number;
}

class HostLister {
 public:
  explicit HostLister(const HostWords& words) : words_(words) {}

  absl::StatusOr<std::vector<ListedHost>> List() {
    if (!words_.hosts.empty() && !words_.hostfile.empty()) {
      Wrong("--hostfile",
            "stands beside --hosts; keep one, and choose hosts of a file by "
            "--include");
    }
    ReadHosts();
    ReadFile();
    if (!words_.include.empty() && !words_.exclude.empty()) {
      Wrong("--exclude", "stands beside --include; keep one of the two");
    } else {
      Choose("--include", words_.include, true);
      Choose("--exclude", words_.exclude, false);
    }
    if (issues_.empty() && hosts_.empty()) Wrong(Source(), "names no host that is left");
    if (!issues_.empty()) return absl::InvalidArgumentError(absl::StrJoin(issues_, "\n"));
    return std::move(hosts_);
  }

 private:
  std::string Source() const {
    if (!words_.hosts.empty()) return absl::StrCat("--hosts ", words_.hosts);
    return words_.hostfile.empty() ? "--hosts" : words_.hostfile;
  }

  void Wrong(absl::string_view place, absl::string_view what) {
    issues_.push_back(absl::StrCat(place, ": ", what));
  }

  void ReadHosts() {
    if (words_.hosts.empty()) return;
    for (const absl::string_view item : absl::StrSplit(words_.hosts, ',')) {
      Add("--hosts", absl::StripAsciiWhitespace(item), std::nullopt);
    }
  }

  void ReadFile() {
    int line_number = 0;
    for (const absl::string_view whole : absl::StrSplit(words_.hostfile_text, '\n')) {
      ++line_number;
      const std::string line(absl::StripAsciiWhitespace(whole.substr(0, whole.find('#'))));
      if (line.empty()) continue;
      if (hosts_.size() >= kMostHosts) return Wrong(words_.hostfile, "has too many lines");
      ReadLine(absl::StrCat(words_.hostfile, ":", line_number), line);
    }
  }

  // "name slots=N max_slots=M domain=NAME", with spaces around = as Open MPI has it, or "name:N".
  void ReadLine(const std::string& place, const std::string& line) {
    const std::string tight =
        absl::StrJoin(absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty()), " ");
    const std::string text =
        absl::StrJoin(absl::StrSplit(absl::StrJoin(absl::StrSplit(tight, " ="), "="), "= "), "=");
    const std::vector<std::string> fields = absl::StrSplit(text, ' ');
    std::optional<int> slots, most;
    std::string domain;
    for (size_t i = 1; i < fields.size(); ++i) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(fields[i], absl::MaxSplits('=', 1));
      if (pair.first == "domain") {
        if (!IsDomainName(pair.second)) {
          return Wrong(place, absl::StrCat(fields[i], ": ", kDomainNames));
        }
        domain = pair.second;
        continue;
      }
      std::optional<int>* const target = pair.first == "slots"       ? &slots
                                         : pair.first == "max_slots" ? &most
                                                                     : nullptr;
      if (target == nullptr) {
        return Wrong(
            place, absl::StrCat(fields[i], " is unknown; use slots=N, max_slots=N or domain=NAME"));
      }
      *target = Number(pair.second, 1, kMostSlots);
      if (!*target) {
        return Wrong(place, absl::StrCat(fields[i], ": use a number from 1 to ", kMostSlots));
      }
    }
    if (slots && most && *slots > *most) {
      return Wrong(place, absl::StrCat("slots=", *slots, " is more than max_slots=", *most,
                                       "; use ", *most, " or fewer"));
    }
    Add(place, fields.front(), slots ? slots : most, domain);
  }

  // "[user@]name[:slots]"
  void Add(absl::string_view place, absl::string_view item, std::optional<int> slots,
           const std::string& domain = "") {
    ListedHost host;
    host.domain = domain;
    absl::string_view rest = item;
    const size_t at = rest.find('@');
    if (at != absl::string_view::npos) {
      host.user = std::string(rest.substr(0, at));
      rest.remove_prefix(at + 1);
      if (!IsName(host.user, "._-")) return WrongName(place, item);
    }
    const bool bracketed = absl::StartsWith(rest, "[");
    const size_t close = bracketed ? rest.find(']') : std::min(rest.find(':'), rest.size());
    if (close == absl::string_view::npos) return WrongName(place, item);
    host.name = std::string(rest.substr(bracketed ? 1 : 0, bracketed ? close - 1 : close));
    absl::string_view count = rest.substr(std::min(close + (bracketed ? 1 : 0), rest.size()));
    if (!IsName(host.name, bracketed ? ":" : "._-")) return WrongName(place, item);
    if (!count.empty()) {
      const bool colon = absl::ConsumePrefix(&count, ":");
      if (slots || !colon) return WrongName(place, item);
      slots = Number(count, 1, kMostSlots);
      if (!slots) {
        return Wrong(place, absl::StrCat(item, ": ", count, " is not a number of slots; use 1 to ",
                                         kMostSlots));
      }
    }
    host.slots = slots.value_or(0);
    Merge(place, std::move(host));
  }

  void WrongName(absl::string_view place, absl::string_view item) {
    Wrong(place, absl::StrCat("\"", item,
                              "\" is not a host; write NAME, NAME:SLOTS or "
                              "USER@NAME:SLOTS, and an IPv6 address in brackets"));
  }

  void Merge(absl::string_view place, ListedHost host) {
    ListedHost* const known = Find(host.name);
    if (known == nullptr) {
      hosts_.push_back(std::move(host));
      return;
    }
    if (known->user != host.user) {
      return Wrong(place, absl::StrCat(host.name,
                                       " is named before with another user; name it "
                                       "once"));
    }
    if (known->domain != host.domain) {
      return Wrong(place, absl::StrCat(host.name,
                                       " is named before with another domain; write the same one "
                                       "on each of its lines"));
    }
    if (known->slots == 0 || host.slots == 0) {
      return Wrong(place, absl::StrCat(host.name,
                                       " is named before; slots of a host add up only "
                                       "where each says how many"));
    }
    if (known->slots + host.slots > kMostSlots) {
      return Wrong(place, absl::StrCat(host.name, " has more than ", kMostSlots, " slots in all"));
    }
    known->slots += host.slots;
  }

  ListedHost* Find(absl::string_view name) {
    const auto found = std::find_if(hosts_.begin(), hosts_.end(),
                                    [&](const ListedHost& each) { return each.name == name; });
    return found == hosts_.end() ? nullptr : &*found;
  }

  // "NAME[:SLOT,SLOT][@NAME...]"
  void Choose(absl::string_view option, const std::string& text, bool keep) {
    if (text.empty()) return;
    std::vector<std::string> whole;  // named without slots
    std::vector<std::string> named;
    for (const absl::string_view item : absl::StrSplit(text, '@')) {
      const size_t colon = item.rfind(':');
      const bool has_slots = colon != absl::string_view::npos && !absl::EndsWith(item, "]");
      absl::string_view name = has_slots ? item.substr(0, colon) : item;
      if (absl::ConsumePrefix(&name, "[")) absl::ConsumeSuffix(&name, "]");
      ListedHost* const host = Find(name);
      if (host == nullptr) {
        WrongChoice(option, name);
        continue;
      }
      named.emplace_back(name);
      if (!has_slots) {
        whole.emplace_back(name);
        continue;
      }
      std::vector<int>& slots = keep ? host->only : host->without;
      for (const absl::string_view number : absl::StrSplit(item.substr(colon + 1), ',')) {
        const int most = (host->slots == 0 ? kMostSlots : host->slots) - 1;
        const std::optional<int> slot = Number(number, 0, most);
        if (slot) {
          slots.push_back(*slot);
        } else {
          Wrong(option, absl::StrCat(item, ": \"", number, "\" is not a slot of ", name,
                                     "; use 0 to ", most));
        }
      }
      std::sort(slots.begin(), slots.end());
      slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    }
    std::erase_if(hosts_, [&](const ListedHost& host) {
      if (keep) return std::count(named.begin(), named.end(), host.name) == 0;
      const bool all = host.slots > 0 && static_cast<int>(host.without.size()) == host.slots;
      return all || std::count(whole.begin(), whole.end(), host.name) > 0;
    });
  }

  void WrongChoice(absl::string_view option, absl::string_view name) {
    std::vector<std::string> names;
    for (const ListedHost& host : hosts_) names.push_back(host.name);
    const std::optional<std::string> nearest = Nearest(name, names);
    Wrong(option, absl::StrCat("\"", name, "\" is none of the hosts",
                               nearest ? absl::StrCat("; is ", *nearest, " meant?")
                                       : absl::StrCat(" of ", Source())));
  }

  const HostWords& words_;
  std::vector<ListedHost> hosts_;
  std::vector<std::string> issues_;
};

}  // namespace

absl::StatusOr<std::vector<ListedHost>> ListHosts(const HostWords& words) {
  return HostLister(words).List();
}

int UsedSlotCount(const ListedHost& host) {
  if (!host.only.empty()) return static_cast<int>(host.only.size());
  return host.slots == 0 ? 0 : host.slots - static_cast<int>(host.without.size());
}

absl::Status SetDomains(const FailureDomains& domains, std::vector<ListedHost>* hosts) {
  if (domains.empty()) return absl::OkStatus();
  for (ListedHost& host : *hosts) {
    const absl::StatusOr<std::string> domain = DomainOf(domains, host.name);
    if (!domain.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cluster.failure_domains: ", domain.status().message()));
    }
    if (!host.domain.empty() && host.domain != *domain) {
      return absl::InvalidArgumentError(
          absl::StrCat("cluster.failure_domains: host ", host.name, " is in ", *domain,
                       ", but the host file says ", "domain=", host.domain,
                       "; write the same one, or leave it out there"));
    }
    host.domain = *domain;
  }
  return absl::OkStatus();
}

std::vector<std::string> SlotOptions(const ListedHost& host) {
  std::vector<std::string> options;
  if (!host.domain.empty()) options.push_back(absl::StrCat("--domain=", host.domain));
  if (host.slots > 0) options.push_back(absl::StrCat("--slots=", host.slots));
  if (!host.only.empty()) {
    options.push_back(absl::StrCat("--only-slots=", absl::StrJoin(host.only, ",")));
  }
  if (!host.without.empty()) {
    options.push_back(absl::StrCat("--without-slots=", absl::StrJoin(host.without, ",")));
  }
  return options;
}

std::string ChosenSlotsText(const std::vector<ListedHost>& hosts) {
  std::vector<std::string> texts;
  for (const ListedHost& host : hosts) {
    const bool keeps = !host.only.empty();
    const std::vector<int>& named = keeps ? host.only : host.without;
    if (named.empty()) continue;
    texts.push_back(absl::StrCat(host.name, ": ", keeps ? "" : "all but ",
                                 named.size() == 1 ? "slot " : "slots ", absl::StrJoin(named, ", "),
                                 host.slots > 0 ? absl::StrCat(" of ", host.slots) : ""));
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace weft
