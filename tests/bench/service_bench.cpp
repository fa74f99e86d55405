// The whole path with real processes, sockets, keys and disk: submit, order, end, commit, stored.
// Usage: service_bench [FOLDER]   (where the state lies; default: the temporary folder)
#include <algorithm>

#include "coordinator/client.h"
#include "schema/json.h"
#include "tests/bench/service.h"

using namespace nightshift;
using namespace nightshift::bench;

namespace {

std::optional<Client> connect(const Service& service) {
  const auto access = service.access();
  if (!access) return std::nullopt;
  auto client = Client::open(*access, {60'000, 3});
  if (!client.ok()) return std::nullopt;
  if (!client->ask("ping", Json::object()).ok()) return std::nullopt;
  return std::move(*client);
}

std::optional<double> submit(Client& client, const JobSpec& spec) {
  SubmitJob job;
  job.spec_json = to_json_text(spec);
  job.user = "ann";
  job.request = random_request();
  Stopwatch watch;
  const auto id = client.submit(job);
  if (id.ok()) return watch.wall_s();
  fmt::print(stderr, "{}\n", id.error().line());
  return std::nullopt;
}

// `stages` in jobs of at most 10,000, on so many workers with 1,024 slots in all.
bool noop_stages(const fs::path& parent, int stages, int workers) {
  Service service(parent);
  auto client = connect(service);
  const auto access = service.access();
  if (!client || !access) return false;
  double submit_s = 0;
  for (int left = stages, job = 0; left > 0; ++job) {
    const int width = std::min(left, 10'000);
    const auto took = submit(*client, layered_job(width, 1, fmt::format("job{}", job)));
    if (!took) return false;
    submit_s = *took;
    left -= width;
  }
  if (stages == 10'000 && workers == 1) report("submit_10k_s", submit_s, "s");
  const double cpu_before_s = service.cpu_s();
  Stopwatch watch;
  Crew crew(*access, workers, 1024 / workers);
  if (!crew.run_until([&] { return crew.done >= stages; }, 300)) {
    fmt::print(stderr, "{} of {} stages done\n", crew.done, stages);
    return false;
  }
  const std::string with = fmt::format("{}_stages_{}_workers", stages, workers);
  report("noop_stages_per_s/" + with, stages / watch.wall_s(), "stages/s");
  report("coordinator_cpu_ms_per_stage/" + with,
         (service.cpu_s() - cpu_before_s) * 1e3 / stages, "ms");
  return true;
}

double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(p * values.size()))];
}

// What the disk alone takes: the floor of everything that is acknowledged.
void disk_floor(const std::string& folder) {
  const int fd = ::open((folder + "/floor").c_str(), O_CREAT | O_WRONLY, 0644);
  std::vector<double> ms;
  const std::string page(4096, 'x');
  for (int i = 0; i < 300; ++i) {
    [[maybe_unused]] const auto wrote = ::pwrite(fd, page.data(), page.size(), i * 4096);
    Stopwatch watch;
    ::fdatasync(fd);
    ms.push_back(watch.wall_s() * 1e3);
  }
  ::close(fd);
  report("fdatasync_p50_ms", percentile(ms, 0.5), "ms");
  report("fdatasync_p99_ms", percentile(ms, 0.99), "ms");
}

// From the submit leaving to the order arriving at an idle worker.
bool dispatch(const fs::path& parent) {
  Service service(parent);
  auto client = connect(service);
  const auto access = service.access();
  if (!client || !access) return false;
  disk_floor(service.folder());
  Crew crew(*access, 1, 4);
  zmq::context_t context;
  Peer person(context, *access);
  std::vector<double> ms;
  for (int i = 0; i < 300; ++i) {
    SubmitJob job;
    job.spec_json = to_json_text(layered_job(1, 1, fmt::format("one{}", i)));
    job.user = "ann";
    job.request = random_request();
    const int before = crew.assigned, done_before = crew.done;
    crew.assigned = 0;
    const double begun = seconds(CLOCK_MONOTONIC);
    person.send(job);
    if (!crew.run_until([&] { return crew.done > done_before; }, 10)) return false;
    if (i >= 20) ms.push_back((crew.first_assign_s - begun) * 1e3);
    crew.assigned += before;
    ::usleep(2'000);   // idle again
  }
  report("dispatch_p50_ms", percentile(ms, 0.5), "ms");
  report("dispatch_p99_ms", percentile(ms, 0.99), "ms");
  return true;
}

// kill -9 with 100,000 stages in the store, 90,000 of them done; to the first order after it.
bool restart(const fs::path& parent) {
  Service service(parent);
  auto client = connect(service);
  const auto access = service.access();
  if (!client || !access) return false;
  {
    Crew crew(*access, 16, 64);
    for (int job = 0; job < 9; ++job) {
      if (!submit(*client, layered_job(10'000, 1, fmt::format("job{}", job)))) return false;
    }
    if (!crew.run_until([&] { return crew.done >= 90'000; }, 300)) return false;
  }
  if (!submit(*client, layered_job(10'000, 1, "rest"))) return false;
  service.kill();
  const double begun = seconds(CLOCK_MONOTONIC);
  service.start();
  Crew crew(*access, 4, 16);
  if (!crew.run_until([&] { return crew.assigned > 0; }, 60)) return false;
  report("restart_100k_s", crew.first_assign_s - begun, "s");
  return true;
}

// The only worker with the attempt falls silent; until another one has it.
bool worker_loss(const fs::path& parent) {
  Service service(parent);
  auto client = connect(service);
  const auto access = service.access();
  if (!client || !access) return false;
  Crew silent(*access, 1, 1);
  silent.does_work = false;
  JobSpec spec = layered_job(1, 1, "loss");
  for (StageSpec& stage : spec.stages) stage.retry = {3, 0};
  if (!submit(*client, spec)) return false;
  if (!silent.run_until([&] { return silent.assigned > 0; }, 10)) return false;
  const double begun = seconds(CLOCK_MONOTONIC);
  const auto is_lost = [&] {
    ::usleep(20'000);
    const auto reply = client->ask("workers", Json::object());
    return reply.ok() && dump_json(*reply).find("\"lost\"") != std::string::npos;
  };
  while (!is_lost()) {
    if (seconds(CLOCK_MONOTONIC) - begun > 60) return false;
  }
  report("worker_loss_s", seconds(CLOCK_MONOTONIC) - begun, "s");
  return true;
}

// A real worker with a running stage; kill -9 of the coordinator, start, until it runs again there.
bool reattach(const fs::path& parent) {
  Service service(parent);
  auto client = connect(service);
  if (!client) return false;
  Process worker({own_folder() + "/nightshift-worker", "--access", service.home() + "/access.json",
                  "--root", service.folder() + "/root", "--name", "box"},
                 service.folder() + "/worker.log");
  JobSpec spec = layered_job(1, 1, "attach");
  spec.stages[0].command = {"sleep", "120"};
  if (!submit(*client, spec)) return false;
  const auto runs = [&](const char* word) {
    for (int i = 0; i < 1'500; ++i) {
      const auto reply = client->ask("status", Json{{"job", "1"}});
      if (reply.ok() && dump_json(*reply).find(word) != std::string::npos) return true;
      ::usleep(20'000);
    }
    return false;
  };
  if (!runs("\"running\"")) return false;
  service.kill();
  const double begun = seconds(CLOCK_MONOTONIC);
  service.start();
  client->set_options({500, 100});
  if (!runs("event=attempt_attached")) return false;
  report("reattach_s", seconds(CLOCK_MONOTONIC) - begun, "s");
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path parent = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  const std::string only = argc > 2 ? argv[2] : "";
  const auto run = [&](const std::string& name, auto&& part) {
    if (!only.empty() && only != name) return true;
    if (part()) return true;
    fmt::print(stderr, "{}: failed\n", name);
    return false;
  };
  bool ok = run("dispatch", [&] { return dispatch(parent); });
  for (const int workers : {1, 4, 16}) {
    ok = run("noop", [&] { return noop_stages(parent, 10'000, workers); }) && ok;
  }
  ok = run("flat", [&] {
         return noop_stages(parent, 1'000, 16) && noop_stages(parent, 100'000, 16);
       }) && ok;
  ok = run("restart", [&] { return restart(parent); }) && ok;
  ok = run("loss", [&] { return worker_loss(parent); }) && ok;
  ok = run("reattach", [&] { return reattach(parent); }) && ok;
  return ok ? 0 : 1;
}
