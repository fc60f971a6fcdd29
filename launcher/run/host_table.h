// HostTable: what checks of hosts have said, host by check, for people and for programs. Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "proto/weft/v1/control.pb.h"

namespace weft {

class HostTable {
 public:
  // Hosts in this order; each has a row, whether or not it is heard.
  explicit HostTable(std::vector<std::string> hosts);

  // A later finding of the same name takes the place of the one before.
  void Take(const v1::HostChecked& checked);
  // The host is of no use, whatever its own checks say; `name`: what has failed there.
  void Fail(const std::string& host, const std::string& name, const std::string& why,
            const std::string& cure);

  // Every host was heard or has failed.
  bool complete() const;
  // Every host was heard, and nothing is broken.
  bool sound() const;
  // Names of the checks that somebody was heard of, in the order of the columns.
  std::vector<std::string> Columns() const;

  // A row per host with a word per check, then what is not well, each with its cure; no line is
  // longer than 80 columns unless a word is.
  std::string Text() const;
  // {"host": "h1", "sound": true, "product_flops_per_s": 1e9, "checks": [{"name", "health",
  // "found", "allowed", "cure"}]} for each, as a JSON list.
  std::string Json() const;

 private:
  struct Row {
    std::string host;
    std::vector<v1::HostChecked::Result> results;
    double product_flops_per_s = 0;
    bool heard = false;
  };
  Row* Find(const std::string& host);
  static bool IsSound(const Row& row);

  std::vector<Row> rows_;
};

}  // namespace weft
