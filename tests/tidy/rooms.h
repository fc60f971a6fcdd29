// This table says which rooms the tree has and who may include what; rules.cc holds includes
// against it. Tests are free.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

namespace weft {

// A room is a part of the tree with one set of permissions: folders of ours that may be included
// ("plan/*": with all rooms below), libraries (LibraryOf of rules.cc), and what more the files of a
// name may include ("main", "link_*").
struct Room {
  std::string folder;
  std::set<std::string> folders;
  std::set<std::string> libraries;
  std::map<std::string, std::set<std::string>> more_for;
};

// The longest matching folder counts.
const std::vector<Room>& Rooms();

}  // namespace weft
