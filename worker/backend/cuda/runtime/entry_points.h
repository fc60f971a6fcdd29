// The functions of a vendor's library that is loaded when it is needed, by name: a host without it
// still has the rest of the backend. Never unloaded.
#pragma once
#include <dlfcn.h>

namespace weft {

class EntryPoints {
 public:
  // Lazily: most of such a library is kernels that a job does not use.
  explicit EntryPoints(const char* library) : handle_(dlopen(library, RTLD_LAZY | RTLD_LOCAL)) {}

  bool is_open() const { return handle_ != nullptr; }  // if not, dlerror says why

  // REQUIRES: is_open. Null, and remembered, if the library has none of that name.
  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }  // the first; null: all are there

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace weft
