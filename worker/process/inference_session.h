// InferenceSession: one worker process that evaluates a model or generates from it, for `weft
// eval` and `weft generate`. It reads one JSON object, the request, to the end of stdin, and writes
// events to stdout, one JSON object a line, each at once:
//
//   request   {"version", "weights": a step folder or a Hugging Face directory, "model": its shape
//             (checkpoint/model_json.h), "backend": "cpu", "threads": 1, "documents":
//             {"bos_token_id": 0 or null, "eos_token_id": 10 or null, "reset_attention_mask",
//             "reset_position_ids"} as trained, "task": ...}
//     "evaluate"   "files": [...], "format": "bytes", "dtype": "auto" (of an id), "split": 0.02
//                  (share of the files that is held out; 0: all of them), "seq_len", "batch":
//                  sequences that pass at once, "global_batch": the run's, whose losses are
//                  summed first, "sequences": how many
//     "generate"   "ids": the prompt's, "max_tokens", "vocabulary": ids below it may be drawn,
//                  "stop_ids": those that end it, "temperature", "top_k", "top_p", "seed"
//   events    {"event": "loading"} repeatedly, {"event": "ready", "bytes": of memory}, then
//     evaluate     {"event": "progress", "sequences"} repeatedly, {"event": "loss", "loss_sum",
//                  "loss_sum_hex": "%a", "tokens"}; JSON has no word for what is not finite: then
//                  the number is null and the text says "nan" or "inf", as in metrics.jsonl
//     generate     {"event": "token", "id"} for each, {"event": "end", "why": "max_tokens",
//                  "positions" (the model has no more), or "stop_id" (one of stop_ids)}
//     at any time  {"event": "error", "code": absl's number, "message"}, the last one
//
// No coordinator, no ranks. A checkpoint is verified as for any load.
#pragma once
#include <iosfwd>
#include <string>

namespace weft {

// 0, or 1 after an error event.
int RunInferenceSession(std::istream& request, std::ostream& events,
                        const std::string& backend_folder);

}  // namespace weft
