// Tally: what became of each fault of a chaos test, printed line by line and in sum.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace weft {

// An Outcome is all that is left to see of a fault.
struct Outcome {
  bool struck = false;  // the fault's moment has come
  int starts = 1;       // of the command, until the run was through
  double seconds = 0;   // until the run had gone on; 0: not measured
};

class Tally {
 public:
  // Counts and prints a fault; `wrong` says which promise it broke, empty: none.
  void Add(const std::string& name, const std::string& wrong, const Outcome& outcome);
  // Prints the sums; with seconds, the longest of each class.
  void Print() const;
  int struck() const;

 private:
  struct Class {
    int struck = 0;
    int not_met = 0;
    double longest_s = 0;
  };
  std::map<std::string, Class> classes_;
  int restarted_by_hand_ = 0;
  int broken_ = 0;
};

}  // namespace weft
