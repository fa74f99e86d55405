// The small process between a worker and a stage: it outlives the worker by seconds, just long
// enough to end everything the stage has started. Knows signals and /proc; must not know jobs,
// messages or the agent.
//
// `nightshift-worker --supervise` runs supervise_main. It leads its own session and is the
// subreaper of its descendants, so a grandchild that calls setsid and loses its parent comes back
// to it. The tree is empty exactly when waitpid says that there is no child left. Rejected: a
// process group (a child may leave it, and its number is recycled), PR_SET_PDEATHSIG alone (reaches
// one generation), cgroups alone (often not writable).
//
// A supervisor serves one stage after another: starting the program costs several times what a
// small stage does. It takes the next stage only when the tree of the last one is empty, so nothing
// of one reaches another. Idle, it only waits for its socket: the end of the worker ends it.
//
// Descriptors: 0, 1, 2 /dev/null, and
//   3  control: a stream socket to the worker. Its end means that the worker is gone.
// With `run` come three more: the attempt's log, the report pipe (4 in the stage), and the launch
// file: folder, argument count, arguments and environment, each closed by NUL.
// Control lines, worker to supervisor:
//   run                      start the stage whose descriptors come with this line
//   stop GRACE_MS            SIGTERM and SIGCONT to the stage's session, after the grace SIGKILL to
//   all
// Control lines, supervisor to worker:
//   started PID              the program runs
//   failed ERRNO             it could not be executed
//   exited CODE SIGNAL       the stage's first process is gone (CODE -1: by SIGNAL)
//   leftovers TEXT           processes that outlived it and are being ended
//   survivors TEXT           processes that SIGKILL has not ended yet
//   empty                    nothing of the tree is left; the supervisor is free again
#pragma once

#include <cstdint>

namespace nightshift {

namespace supervisor {
inline constexpr const char* argument = "--supervise";
inline constexpr int control_fd = 3;
inline constexpr int report_fd = 4;
// For what outlives the stage's first process, and for everything when the worker is gone.
inline constexpr std::int64_t leftover_grace_ms = 2000;
inline constexpr std::int64_t survivors_after_ms = 5000;
}  // namespace supervisor

// The whole life of a supervisor; returns the exit status of the process.
int supervise_main();

}  // namespace nightshift
