// A Relay through files of a folder, for ranks of one host that no coordinator joins: probes. A
// note is a file named after topic and sender, moved into place when it is whole. The folder is the
// ranks' own and new for each group, or they would hear the notes of the one before.
#pragma once
#include <string>

#include "worker/backend/backend.h"

namespace weft {

class FolderRelay final : public Relay {
 public:
  FolderRelay(std::string folder, int rank);

  // Whoever asks may read it, whatever `to` says.
  BackendStatus Send(const char* topic, const int* to, int count, const void* data,
                     int bytes) override;
  BackendStatus Receive(const char* topic, int from, int64_t timeout_ms, void* data,
                        int bytes) override;

 private:
  std::string PathOf(const char* topic, int from) const;

  std::string folder_;
  int rank_;
};

}  // namespace weft
