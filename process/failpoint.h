// A failpoint is a named place of the code at which a test lets a process end as a kill or a power
// cut would end it. None does anything unless WEFT_FAILPOINT=NAME:COUNT:TOKEN names it: then the
// process that comes to NAME for the COUNT-th time, and that succeeds in removing the file TOKEN,
// kills itself with SIGKILL. The token makes it one process, and once, however many ranks or
// restarts inherit the variable. Any thread.
// WEFT_FAILPOINT_PAUSE=NAME:MS lets every process that comes to NAME sleep there for MS
// milliseconds, each time, as on a machine that is slow but idle.
// A process whose variable has another form, or names no place, says so and exits with 2.
#pragma once
#include <array>

namespace weft {

inline constexpr char kFailpointVariable[] = "WEFT_FAILPOINT";
inline constexpr char kPauseVariable[] = "WEFT_FAILPOINT_PAUSE";

// Each name stands at one place of the code.
inline constexpr std::array kFailpoints = {
    "file.create",
    "file.append",
    "file.appended",
    "file.sync",
    "file.synced",
    "folder.sync",
    "shard.begin",
    "shard.written",
    "commit.begin",
    "commit.manifest",
    "commit.publish",
    "commit.published",
    "clean_up.begin",
    "clean_up.renamed",
    "clean_up.removed",
    "rank.prepare",
    "rank.open_data",
    "rank.allocate",
    "rank.load",
    "rank.steps",
    "step.begin",
    "step.action",
    "step.reduce_parts",
    "step.reduce_norm",
    "step.update",
    "step.totals",
    "save.begin",
    "save.copied",
    "save.shard_written",
    "save.commit",
    "save.committed",
    "save.reported",
    "save.clean_up",
    "rank.attach",
    "rank.await_train",
    "rank.ready",
    "rank.await_begin",
    "rank.report_step",
    "rank.report_committed",
    "rank.report_finished",
    "journal.append",
    "journal.group",
    "journal.open",
    "journal.replay",
    "journal.insert",
    "journal.inserted",
    "driver.replayed",
    "driver.commit",
    "driver.committed",
    "driver.acknowledge",
    "driver.send",
    "driver.happened",
    "driver.submitted",
    "driver.stop_asked",
    "driver.start_training",
    "driver.begin_steps",
    "driver.grant_commit",
    "driver.end_save",
    "driver.step",
    "driver.launch",
    "driver.agent_fact",
    "prepare.append",
    "prepare.synced",
    "prepare.committed",
    "prepare.publish",
    "prepare.published",
    "agent.begin",
    "agent.launch",
    "agent.start_group",
    "agent.reported",
    "agent.pages",
};

void Failpoint(const char* name);

}  // namespace weft
