// nightshift-worker: the agent on one machine. Knows the command line; everything else is in the
// library.
#include <sys/random.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "schema/access.h"
#include "worker/files.h"
#include "worker/log_bound.h"
#include "worker/loop.h"
#include "worker/probes.h"
#include "worker/supervisor.h"

namespace {

using namespace nightshift;

std::string own_folder() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return size <= 0 ? "." : parent_folder(std::string(path, static_cast<std::size_t>(size)));
}

std::string random_session() {
  unsigned char bytes[16] = {};
  [[maybe_unused]] const auto got = ::getrandom(bytes, sizeof bytes, 0);
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

int fail(const Error& error) {
  std::fprintf(stderr, "nightshift-worker: %s\n", error.line().c_str());
  return 1;
}

struct Arguments {
  std::string access;
  std::string root;
  std::string temp;
  std::string name = host_name();
  int slots = 1;
  std::vector<std::string> labels;
  std::string stage_program = own_folder() + "/nightshift-stage";
  int parent_fd = -1;
  std::int64_t stop_grace_s = 10;
  std::int64_t fence_after_s = 600;
  std::int64_t log_limit_mib = log_limit_bytes_default >> 20;
};

void describe(CLI::App& app, Arguments& a) {
  app.add_option("--access", a.access, "Access file made by the coordinator")->required();
  app.add_option("--root", a.root, "Folder for attempts and checkpoints; one worker each")
      ->required();
  app.add_option("--temp", a.temp, "Folder for the stages' TMPDIR (default: ROOT/tmp)");
  app.add_option("--name", a.name, "Name, unique at the coordinator")->capture_default_str();
  app.add_option("--slots", a.slots, "Stages at the same time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--label", a.labels, "Label that stages can ask for; repeatable")
      ->allow_extra_args(false);
  app.add_option("--stage-program", a.stage_program, "Program of the built-in stages");
  app.add_option("--stop-grace", a.stop_grace_s, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  app.add_option("--fence-after", a.fence_after_s,
                 "Seconds without a word from the coordinator after which running stages are ended")
      ->check(CLI::Range(10, 7 * 86400))
      ->capture_default_str();
  app.add_option("--log-limit", a.log_limit_mib,
                 "MiB of each attempt's log that are kept, from its begin and its end (0: all)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--parent-fd", a.parent_fd, "Descriptor whose end means that the parent is gone")
      ->check(CLI::Range(3, 1 << 20));
  app.set_version_flag("--version", "nightshift-worker 0.1.0");
}

int run(const Arguments& arguments) {
  auto access = read_access(arguments.access);
  if (!access) return fail(access.error());
  LoopOptions options;
  options.access = std::move(*access);
  options.root = arguments.root;
  options.temp = arguments.temp;
  options.stage_program = arguments.stage_program;
  options.parent_fd = arguments.parent_fd;
  options.log_limit_bytes = arguments.log_limit_mib << 20;
  options.agent.worker = WorkerId{arguments.name};
  options.agent.session = random_session();
  options.agent.host = host_name();
  options.agent.pid = ::getpid();
  options.agent.software = "0.1.0";
  options.agent.resources = own_resources(arguments.slots, arguments.labels);
  options.agent.stop_grace_ms = arguments.stop_grace_s * 1000;
  options.agent.fence_after_ms = arguments.fence_after_s * 1000;
  Loop loop(std::move(options));
  if (const Status opened = loop.open(); !opened) return fail(opened.error());
  return loop.run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == supervisor::argument) return supervise_main();
  CLI::App app{"Runs the stages of Nightshift jobs on this machine", "nightshift-worker"};
  Arguments arguments;
  describe(app, arguments);
  CLI11_PARSE(app, argc, argv);
  return run(arguments);
}
