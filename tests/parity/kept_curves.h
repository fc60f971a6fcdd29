// Curves that were trained before, kept in the build folder (build/release/curves), so that each is
// trained once however many comparisons want it. A curve is found by the hash of all that decides
// its bits: the job's text with its layout, the bytes of its data, of weft_parity_rank and of
// libweft_cpu.so, the libraries that these load, the processor, and OPENBLAS_CORETYPE. So a new
// build trains anew. Every curve comes from processes of its own (training.h): one that is kept was
// made by other processes than whatever it is compared with. Any process, any time.
#pragma once
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tests/parity/curve.h"
#include "tests/parity/parity_job.h"

namespace weft {

// Returns the curve that is kept; trains it, once, if none is. Whoever else wants it meanwhile
// waits, at most as long as a training may take.
absl::StatusOr<Curve> KeptCurve(const ParityJob& parity);

// Trains, whatever is kept, and keeps the curve if none is.
absl::StatusOr<Curve> FreshCurve(const ParityJob& parity);

// The form of a file: the hash of what follows, and the curve. Empty: it is damaged.
std::string CurveText(const Curve& curve);
std::optional<Curve> ReadCurve(const std::string& text);

}  // namespace weft
