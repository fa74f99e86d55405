#include "tests/e2e/night.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "schema/content_hash.h"

namespace nightshift::testing {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string bin(const std::string& program) {
  const char* folder = std::getenv("NIGHTSHIFT_BIN");
  return std::string(folder == nullptr ? "build/bin" : folder) + "/" + program;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first `count` lines of a file of the sample's data.
void cut_lines(const std::string& from, const std::string& to, int count, int every) {
  std::ifstream in(from);
  std::ofstream out(to);
  std::string line;
  for (int n = 0, taken = 0; taken < count && std::getline(in, line); ++n) {
    if (n % every != 0) continue;
    out << line << "\n";
    ++taken;
  }
}

constexpr const char* job_text = R"(name: small-night
model: {path: MODEL}
bench: {batch: 4, input_tokens: 64, output_tokens: 16, warmup: 5, repeats: 3}
red_lines:
  throughput_tok_s: ">= 0.1x"
  accuracy_drop: {all_groups: 50%}
  token_match: ">= 50%"
evaluation:
  tasks: eval.jsonl
  heldout: {qa: heldout.jsonl}
  groups: {all_groups: [qa, summary, code]}
stages:
  baseline: {}
  calibrate: {needs: baseline, data: calibration.jsonl, samples: 64, batch: 8, steps: 8}
  quantize: {needs: calibrate, keep: ["*.self_attn.*", "*.mlp.gate", "lm_head"]}
  fuse: {needs: quantize}
  evaluate: {needs: fuse}
  soak: {needs: evaluate, requests: 60, concurrency: 8, input_tokens: [8, 64],
         output_tokens: [4, 16]}
retry: {max: RETRIES, backoff: 200ms}
)";

void replace(std::string& text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
}

// All of `text` appears in the NUL-separated file /proc/PID/NAME.
bool proc_file_holds(pid_t pid, const char* name, const std::string& text) {
  return read_all("/proc/" + std::to_string(pid) + "/" + name).find(text) != std::string::npos;
}

}  // namespace

std::vector<pid_t> processes_with(const std::string& text, const std::string& program) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    const pid_t pid = static_cast<pid_t>(std::stol(name));
    std::error_code failed;
    const std::string exe = fs::read_symlink(entry.path() / "exe", failed).filename().string();
    if (failed || exe != program) continue;
    if (proc_file_holds(pid, "environ", text) || proc_file_holds(pid, "cmdline", text)) {
      found.push_back(pid);
    }
  }
  return found;
}

Night::Night(int retries) {
  std::string pattern = (fs::temp_directory_path() / "nightshift-e2e-XXXXXX").string();
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  const std::string data = fs::absolute("jobs/data").string();
  cut_lines(data + "/eval.jsonl", folder_ + "/eval.jsonl", 30, 20);
  cut_lines(data + "/heldout-qa.jsonl", folder_ + "/heldout.jsonl", 20, 5);
  cut_lines(data + "/calibration.jsonl", folder_ + "/calibration.jsonl", 64, 1);
  std::string text = job_text;
  replace(text, "MODEL", fs::absolute("jobs/models/k3-nano").string());
  replace(text, "RETRIES", std::to_string(retries));
  std::ofstream(job_file()) << text;
}

Night::~Night() {
  for (pid_t pid : started_) ::kill(pid, SIGTERM);
  for (pid_t pid : started_) ::waitpid(pid, nullptr, 0);
  for (const char* program : {"nightshift", "nightshift-worker", "nightshift-stage"}) {
    for (pid_t pid : processes_with(folder_, program)) ::kill(pid, SIGKILL);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

pid_t Night::start_program(const std::string& name, const std::string& program,
                           std::vector<std::string> arguments) {
  const std::string path = bin(program);
  const std::string out = folder_ + "/" + name + ".out";
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  started_.push_back(pid);
  return pid;
}

pid_t Night::start(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--home", home()});
  return start_program(name, "nightshift", std::move(arguments));
}

int Night::wait(pid_t pid, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid) {
      std::erase(started_, pid);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (std::chrono::steady_clock::now() > end) FAIL("a command did not end in time");
    std::this_thread::sleep_for(20ms);
  }
}

CommandResult Night::nightshift(std::vector<std::string> arguments) {
  const std::string name = "command";
  std::error_code ignored;
  fs::remove(folder_ + "/" + name + ".out", ignored);
  const pid_t pid = start(name, std::move(arguments));
  const int code = wait(pid, 300);
  return {code, output(name)};
}

std::string Night::output(const std::string& name) const {
  return read_all(folder_ + "/" + name + ".out");
}

Json Night::status(const std::string& job) {
  const CommandResult result = nightshift({"status", job, "--json"});
  if (result.exit_code != 0) return nullptr;
  auto json = parse_json(result.out, "status");
  return json.ok() ? *json : Json(nullptr);
}

Json Night::stage(const std::string& name) {
  const Json json = status();
  if (json.is_null()) return nullptr;
  for (const Json& stage : json.at("stages")) {
    if (stage.at("name") == name) return stage;
  }
  return nullptr;
}

void Night::wait_for(const std::string& name, const std::string& state, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const Json found = stage(name);
    if (!found.is_null() && found.at("state") == state) return;
    std::this_thread::sleep_for(50ms);
  }
  FAIL("stage " << name << " did not come to " << state);
}

pid_t Night::stage_pid() const {
  const auto found = processes_with(home(), "nightshift-stage");
  return found.empty() ? -1 : found.front();
}

pid_t Night::worker_pid() const {
  // The supervisors of stages run the same program; the agent is the one with an access file.
  for (pid_t pid : processes_with(home(), "nightshift-worker")) {
    if (proc_file_holds(pid, "cmdline", "--access")) return pid;
  }
  return -1;
}

pid_t Night::coordinator_pid() const {
  const std::string text = read_all(home() + "/coordinator.lock");
  return text.empty() ? -1 : static_cast<pid_t>(std::atol(text.c_str()));
}

std::vector<std::pair<std::string, std::string>> Night::logs() const {
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(home() + "/attempts", failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->path().filename() != "log" || !it->is_regular_file()) continue;
    auto hash = hash_file(it->path().string());
    if (hash.ok()) found.emplace_back(it->path().string(), *hash);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace nightshift::testing
