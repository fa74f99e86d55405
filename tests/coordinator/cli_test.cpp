#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "coordinator/cli/commands.h"
#include "coordinator/sqlite_store.h"
#include "tests/coordinator/reactor_world.h"
#include "tests/coordinator/server_fixture.h"

using namespace nightshift;
using namespace nightshift::testing;
using namespace nightshift::cli;

namespace {

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// The program in this process, with stdout and stderr in files.
class Captured {
 public:
  explicit Captured(int fd) : fd_(fd), saved_(::dup(fd)), file_(std::tmpfile()) {
    std::fflush(stdout);
    ::dup2(fileno(file_), fd_);
  }
  std::string end() {
    std::fflush(stdout);
    ::dup2(saved_, fd_);
    ::close(saved_);
    std::string text(1 << 20, '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    std::fclose(file_);
    return text;
  }

 private:
  int fd_;
  int saved_;
  std::FILE* file_;
};

Output nightshift_cli(const std::vector<std::string>& words) {
  Captured out(STDOUT_FILENO);
  Captured err(STDERR_FILENO);
  Output output;
  output.exit_code = run_cli(words);
  output.err = err.end();
  output.out = out.end();
  return output;
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("cli: options of the program stand before or behind the command") {
  for (const auto& words : {std::vector<std::string>{"--home", "/h", "status", "3", "--watch"},
                            std::vector<std::string>{"status", "3", "--home", "/h", "-w"}}) {
    const ParsedArguments parsed = parse_arguments(words);
    REQUIRE(parsed.arguments);
    CHECK(parsed.arguments->place.home == "/h");
    const auto& status = std::get<StatusArguments>(parsed.arguments->command);
    CHECK(status.job == "3");
    CHECK(status.watch);
    CHECK_FALSE(status.json);
  }
}

TEST_CASE("cli: every command's arguments") {
  auto parse = [](const std::vector<std::string>& words) {
    const ParsedArguments parsed = parse_arguments(words);
    if (!parsed.arguments) FAIL(parsed.text);
    return parsed.arguments->command;
  };
  CHECK(std::get<RunArguments>(parse({"run", "j.yaml", "--slots", "2"})).worker.slots == 2);
  CHECK(std::get<CoordinatorArguments>(parse({"coordinator", "--listen", "tcp://*:1"})).listen ==
        "tcp://*:1");
  CHECK(std::get<SubmitArguments>(parse({"submit", "j.yaml"})).job_file == "j.yaml");
  const auto logs = std::get<LogsArguments>(parse({"logs", "3", "fuse", "-f", "--attempt", "2"}));
  CHECK(logs.stage == "fuse");
  CHECK(logs.follow);
  CHECK(logs.attempt == 2);
  const auto resume = std::get<ResumeArguments>(
      parse({"resume", "3", "--plan", "--from", "fuse", "--job-file", "j.yaml"}));
  CHECK(resume.plan);
  CHECK(resume.from == "fuse");
  CHECK(resume.job_file == "j.yaml");
  CHECK(std::get<CancelArguments>(parse({"cancel", "3", "fuse"})).stage == "fuse");
  CHECK(std::get<ReportArguments>(parse({"report", "3", "--csv"})).csv);
  CHECK(std::get<CheckArguments>(parse({"check", "a", "b"})).job_files.size() == 2);
  CHECK(std::get<WorkersArguments>(parse({"workers", "--json"})).json);
  CHECK(std::get<ExplainArguments>(parse({"explain", "3"})).stage.empty());
  CHECK(std::holds_alternative<VersionArguments>(parse({"version"})));
}

TEST_CASE("cli: a mistake is one line that says what was meant") {
  const Output wrong = nightshift_cli({"statsu"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("nightshift: error: there is no command statsu; did you mean status?") == 0);
  CHECK(lines_in(wrong.err) == 1);
  CHECK(wrong.out.empty());
  CHECK(nightshift_cli({}).exit_code == 2);
  CHECK(nightshift_cli({"run"}).exit_code == 2);
  CHECK(nightshift_cli({"report", "1", "--json", "--csv"}).exit_code == 2);
  CHECK(nightshift_cli({"logs", "1", "--attempt", "0"}).exit_code == 2);
  const Output help = nightshift_cli({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out.find("coordinator") != std::string::npos);
  CHECK(nightshift_cli({"version"}).out == "nightshift 0.1.0\n");
}

TEST_CASE("cli: check says every mistake of a job file with its place, offline") {
  const TemporaryHome folder;
  const std::string path = folder.path + "/job.yaml";
  std::ofstream(path) << "name: x\n"
                         "model: {path: nowhere}\n"
                         "stages:\n"
                         "  baseline: {}\n"
                         "  quantize: {needs: baselin}\n"
                         "retry: {max: many}\n"
                         "unknown_key: 1\n";
  const Output output = nightshift_cli({"check", path});
  CHECK(output.exit_code == 1);
  CHECK(output.out.empty());
  CHECK(lines_in(output.err) >= 3);
  CHECK(output.err.find("nightshift: error: " + path + ":5:") != std::string::npos);
  CHECK(output.err.find(path + ":6:") != std::string::npos);
  CHECK(output.err.find(path + ":7:") != std::string::npos);
  CHECK(nightshift_cli({"check", folder.path + "/none.yaml"}).exit_code == 1);
}

TEST_CASE("cli: without a coordinator it says how to get one") {
  const TemporaryHome folder;
  for (const auto& words :
       {std::vector<std::string>{"status"}, {"workers"}, {"cancel", "1"}, {"logs", "1"}}) {
    std::vector<std::string> all = {"--home", folder.path + "/none"};
    all.insert(all.end(), words.begin(), words.end());
    const Output output = nightshift_cli(all);
    CHECK(output.exit_code == 1);
    CHECK(output.err.find("nightshift: error: no coordinator at ") == 0);
    CHECK(lines_in(output.err) == 1);
  }
}

TEST_CASE("cli: commands against a live coordinator, and the same home without one") {
  const TemporaryHome folder;
  const Home home = folder.home();
  {
    const Result<HomeLock> lock = HomeLock::take(home);
    REQUIRE(lock.ok());
    auto store = open_sqlite_store(home.database(), {.synchronous_off = true});
    REQUIRE(store.ok());
    RunningServer server(home, **store);
    FakeWorker worker(server.access(), "box1", "s1");
    Client client = server.client();
    REQUIRE(client.submit({to_json_text(dag("a -> b", "night")), "", "u", "r"}).ok());
    worker.do_one();
    const AttemptRef b = worker.peer.expect<AssignAttempt>().ref;
    worker.started(b);
    CHECK(client.ask("ping", Json::object()).ok());

    const Output workers = nightshift_cli({"--home", folder.path, "workers"});
    CHECK(workers.out.find("box1  online") == 0);
    const Output list = nightshift_cli({"--home", folder.path, "status"});
    CHECK(list.exit_code == 0);
    CHECK(list.out.find("    1  night  active         1/2") != std::string::npos);
    const Output one = nightshift_cli({"--home", folder.path, "status", "night"});
    CHECK(one.out.find("✓ a    #1  done") != std::string::npos);
    const Output json = nightshift_cli({"--home", folder.path, "status", "1", "--json"});
    const auto view = parse_json(json.out, "status --json");
    REQUIRE(view.ok());
    CHECK(view->at("name") == "night");
    CHECK(nightshift_cli({"--home", folder.path, "cancel", "night", "b"}).exit_code == 0);
  }
  // Nobody runs: the store itself answers.
  const Output status = nightshift_cli({"--home", folder.path, "status", "1"});
  CHECK(status.exit_code == 0);
  CHECK(status.out.find("cancelled") != std::string::npos);
  const Output report = nightshift_cli({"--home", folder.path, "report", "1", "--json"});
  const auto parsed = parse_json(report.out, "report");
  REQUIRE(parsed.ok());
  CHECK(parsed->at("verdict") == "cancelled");
  CHECK(report.exit_code == 1);
  const Output out = nightshift_cli({"--home", folder.path, "report", "1", "--out",
                                     folder.path + "/out"});
  CHECK(out.out.find(folder.path + "/out/report.json\n") != std::string::npos);
  CHECK(std::filesystem::exists(folder.path + "/out/report.csv"));
  const Output plan = nightshift_cli({"--home", folder.path, "resume", "1", "--plan"});
  CHECK(plan.exit_code == 0);
  CHECK(plan.out.find("  a  reuse") == 0);
  CHECK(plan.out.find("  b  rerun") != std::string::npos);
  CHECK(nightshift_cli({"--home", folder.path, "explain", "1"}).exit_code == 0);
  const Output wrong = nightshift_cli({"--home", folder.path, "report", "nihgt"});
  CHECK(wrong.err == "nightshift: error: there is no job nihgt (did you mean night?)\n");
}
