#include "process/rank_place.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace weft {
namespace {

constexpr int kPreferred = 1;  // MPOL_PREFERRED, of linux/mempolicy.h, which few machines have
constexpr int kMostNodes = 1024;
constexpr int kWordBits = 8 * sizeof(unsigned long);

// A whole word as a number.
std::optional<int> Number(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

// Takes what stands before `mark` off the text; all of it if there is none.
std::string_view TakeUpTo(char mark, std::string_view& text) {
  const size_t at = text.find(mark);
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return word;
}

bool TakeCpus(std::string_view list, std::vector<int>& cpus) {
  while (!list.empty()) {
    std::string_view range = TakeUpTo(',', list);
    const bool is_one = range.find('-') == std::string_view::npos;
    const std::optional<int> first = Number(TakeUpTo('-', range));
    const std::optional<int> last = is_one ? first : Number(range);
    if (!first || !last || *first < 0 || *last >= CPU_SETSIZE) return false;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return true;
}

}  // namespace

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (last > i) text += '-' + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

std::string PlacesText(const std::vector<RankPlace>& places) {
  std::string text;
  for (const RankPlace& place : places) {
    if (!text.empty()) text += ';';
    text += std::to_string(place.slot) + ':' + CpuListText(place.cpus) + ':' +
            std::to_string(place.memory_node);
  }
  return text;
}

std::optional<std::vector<RankPlace>> ParsePlaces(std::string_view text) {
  std::vector<RankPlace> places;
  while (!text.empty()) {
    std::string_view words = TakeUpTo(';', text);
    RankPlace place;
    const std::optional<int> slot = Number(TakeUpTo(':', words));
    const bool has_cpus = TakeCpus(TakeUpTo(':', words), place.cpus);
    const std::optional<int> node = Number(words);
    if (!slot || *slot < 0 || !has_cpus || !node || *node >= kMostNodes) return std::nullopt;
    place.slot = *slot;
    place.memory_node = *node;
    places.push_back(place);
  }
  return places;
}

int SharersOf(const std::vector<RankPlace>& places, int slot) {
  const auto own = std::find_if(places.begin(), places.end(),
                                [&](const RankPlace& place) { return place.slot == slot; });
  if (own == places.end() || own->cpus.empty()) return 0;
  return static_cast<int>(std::count_if(places.begin(), places.end(), [&](const RankPlace& place) {
    return place.cpus == own->cpus;
  }));
}

PlaceTaker::PlaceTaker(const RankPlace& place)
    : binds_(!place.cpus.empty()), memory_node_(place.memory_node) {
  CPU_ZERO(&cpus_);
  for (const int cpu : place.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus_);
}

int PlaceTaker::Take() const {
  int refused = 0;
  if (binds_ && sched_setaffinity(0, sizeof(cpus_), &cpus_) != 0) refused = errno;
  if (memory_node_ >= 0 && memory_node_ < kMostNodes) {
    unsigned long nodes[kMostNodes / kWordBits] = {};
    nodes[memory_node_ / kWordBits] = 1UL << (memory_node_ % kWordBits);
    // The kernel takes one bit less than it is told of.
    if (syscall(SYS_set_mempolicy, kPreferred, nodes, kMostNodes) != 0) refused = errno;
  }
  return refused;
}

}  // namespace weft
