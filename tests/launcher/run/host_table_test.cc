#include "launcher/run/host_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace weft {
namespace {

v1::HostChecked Checked(const std::string& host, const std::string& name,
                        v1::HostChecked::Result::Severity severity) {
  v1::HostChecked checked;
  checked.set_host(host);
  v1::HostChecked::Result& result = *checked.add_results();
  result.set_name(name);
  result.set_severity(severity);
  result.set_found("1.00 GiB free");
  if (severity == v1::HostChecked::Result::WELL) return checked;
  result.set_allowed("2 ranks of 4.00 GiB need 8.00 GiB");
  result.set_cure("end what else runs there, raise the control group's limit, or name fewer slots");
  return checked;
}

TEST(HostTable, HasARowPerHostAndACurePerProblem) {
  HostTable table({"h1", "h2", "h3", "h4"});
  table.Take(Checked("h1", "memory", v1::HostChecked::Result::WELL));
  table.Take(Checked("h2", "memory", v1::HostChecked::Result::BROKEN));
  table.Take(Checked("h1", "devices", v1::HostChecked::Result::NOTE));
  EXPECT_FALSE(table.complete());
  table.Fail("h3", "ssh", "it does not answer", "");
  EXPECT_EQ(table.Text(),
            "host ssh device memory\n"
            "h1   -   note   ok\n"
            "h2   -   -      BAD\n"
            "h3   BAD -      -\n"
            "h4   -   -      -       not heard\n"
            "h1: devices: 1.00 GiB free, but 2 ranks of 4.00 GiB need 8.00 GiB\n"
            "    end what else runs there, raise the control group's limit, or name fewer\n"
            "    slots\n"
            "h2: memory: 1.00 GiB free, but 2 ranks of 4.00 GiB need 8.00 GiB\n"
            "    end what else runs there, raise the control group's limit, or name fewer\n"
            "    slots\n"
            "h3: ssh: it does not answer\n");
  EXPECT_FALSE(table.sound());
}

TEST(HostTable, TakesTheLaterFindingOfAName) {
  HostTable table({"h1"});
  table.Take(Checked("h1", "product", v1::HostChecked::Result::WELL));
  EXPECT_TRUE(table.complete() && table.sound());
  table.Take(Checked("h1", "product", v1::HostChecked::Result::BROKEN));
  EXPECT_FALSE(table.sound());
  const auto json = nlohmann::json::parse(table.Json(), nullptr, false);
  ASSERT_TRUE(json.is_array());
  EXPECT_EQ(json[0]["host"], "h1");
  EXPECT_EQ(json[0]["sound"], false);
  ASSERT_EQ(json[0]["checks"].size(), 1u);
  EXPECT_EQ(json[0]["checks"][0]["health"], "broken");
}

// All checks there are, and a host with a long name.
TEST(HostTable, FitsEightyColumns) {
  HostTable table({"a-host-with-a-very-long-name.cluster.example"});
  for (const char* name : {"ssh", "devices", "memory", "shared memory", "run folder", "checkpoints",
                           "data", "clock", "network", "product", "pairs"}) {
    table.Take(Checked("a-host-with-a-very-long-name.cluster.example", name,
                       v1::HostChecked::Result::WELL));
  }
  std::istringstream text(table.Text());
  int lines = 0;
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_GT(lines, 2) << "the head, the host, and what it has";
}

TEST(HostTable, SaysWhatHostsHave) {
  HostTable table({"h1", "h2"});
  for (const auto& [host, found] :
       {std::pair("h1", "2 cores, Open MPI 4.1.4"), std::pair("h2", "2 cores, Open MPI 4.1.5")}) {
    v1::HostChecked checked = Checked(host, "devices", v1::HostChecked::Result::WELL);
    checked.mutable_results(0)->set_found(found);
    table.Take(checked);
  }
  EXPECT_EQ(table.Text(),
            "host device\n"
            "h1   ok\n"
            "h2   ok\n"
            "h1: 2 cores, Open MPI 4.1.4\n"
            "h2: 2 cores, Open MPI 4.1.5\n");
}

}  // namespace
}  // namespace weft
