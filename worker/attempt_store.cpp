#include "worker/attempt_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "schema/log_piece.h"
#include "schema/text.h"
#include "worker/checkpoint_seal.h"
#include "worker/event_log.h"
#include "worker/log_reader.h"
#include "worker/stage_environment.h"

namespace nightshift {

namespace {

constexpr std::int64_t result_bytes_max = 64 << 20;
constexpr std::int64_t log_chunk_bytes_max = 1 << 20;
constexpr const char* temp_prefix = "nightshift-";

std::string absolute(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  char* here = ::getcwd(nullptr, 0);
  std::string text = here == nullptr ? path : std::string(here) + "/" + path;
  std::free(here);
  return text;
}

// A peer has sent it: nothing that leads out of the root.
Status check_ref(const AttemptRef& ref) {
  if (ref.job.value > 0 && ref.attempt.value > 0 && is_stage_name(ref.stage)) return {};
  return Error{ErrorCode::invalid_argument, "is not an attempt that can have a folder",
               to_string(ref), ""};
}

// Positive whole numbers without sign or leading zero; 0: not one.
std::int64_t number_of(const std::string& name) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return whole && value > 0 && std::to_string(value) == name ? value : 0;
}

void warn(const Status& status, const char* event) {
  if (!status) log_event(event, {{"error", status.error().line()}});
}

Outcome outcome_of(const Error& error) {
  if (error.code == ErrorCode::out_of_disk) return Outcome::disk;
  return error.code == ErrorCode::unsupported ? Outcome::error : Outcome::crash;
}

}  // namespace

AttemptStore::AttemptStore(std::string root, std::string temp)
    : root_(absolute(root)), temp_(temp.empty() ? root_ + "/tmp" : absolute(temp)) {}

std::string AttemptStore::attempt_folder(const AttemptRef& ref) const {
  return root_ + "/attempts/" + std::to_string(ref.job.value) + "/" + ref.stage + "/" +
         std::to_string(ref.attempt.value);
}

std::string AttemptStore::checkpoint_folder(const AttemptRef& ref) const {
  return root_ + "/checkpoints/" + std::to_string(ref.job.value) + "/" + ref.stage + "." +
         std::to_string(ref.attempt.value);
}

Status AttemptStore::open() {
  NS_TRY(make_folders(root_));
  // One spelling, whatever way led here: leftovers of an earlier worker are found by it.
  std::error_code failed;
  const std::string real = std::filesystem::canonical(root_, failed).string();
  if (failed) return errno_error(failed.value(), "resolve the folder", root_);
  if (temp_ == root_ + "/tmp") temp_ = real + "/tmp";
  root_ = real;
  for (const char* name : {"/attempts", "/checkpoints", "/tmp"}) NS_TRY(make_folders(root_ + name));
  const std::string path = root_ + "/worker.lock";
  lock_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_.is_open()) return errno_error(errno, "open", path);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return errno_error(errno, "lock", path);
  return Error{ErrorCode::conflict, "another worker uses this folder", root_,
               "give each worker its own --root"};
}

Status AttemptStore::check_inputs(const AssignAttempt& order) const {
  for (const auto& [stage, expected] : order.input_digests) {
    const auto input = order.order.inputs.find(stage);
    if (input == order.order.inputs.end() || expected.empty()) continue;
    auto manifest = check_checkpoint(input->second);
    if (!manifest) {
      manifest.error().what =
          "the checkpoint of " + stage + " is not usable: " + manifest.error().what;
      return std::move(manifest.error());
    }
    if (manifest->digest() != expected) {
      return Error{ErrorCode::conflict,
                   "the checkpoint of " + stage + " is another one (" + manifest->digest() +
                       ") than the order expects (" + expected + ")",
                   input->second, ""};
    }
  }
  return {};
}

// From the newest earlier attempt that still has it. A crash after the rename leaves it here, where
// the next attempt finds it.
Status AttemptStore::make_state(const AttemptRef& ref) {
  const std::string state = attempt_folder(ref) + "/state";
  const std::string stage_folder = parent_folder(attempt_folder(ref));
  NS_TRY_ASSIGN(const auto names, list_folder(stage_folder));
  std::int64_t newest = 0;
  for (const std::string& name : names) {
    const std::int64_t number = number_of(name);
    if (number > newest && number < ref.attempt.value &&
        is_folder(stage_folder + "/" + name + "/state")) {
      newest = number;
    }
  }
  if (newest == 0) return make_new_folder(state);
  return rename_durable(stage_folder + "/" + std::to_string(newest) + "/state", state);
}

Result<std::string> AttemptStore::make_temp(const AssignAttempt& order, const std::string& folder) {
  const std::string base = order.temp.empty() ? temp_ : order.temp;
  NS_TRY(make_folders(base));
  std::string path = base + "/" + temp_prefix + std::to_string(order.ref.job.value) + "-" +
                     order.ref.stage + "-" + std::to_string(order.ref.attempt.value) + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return errno_error(errno, "make a folder in", base);
  NS_TRY(write_file_durable(folder + "/temp", path));
  return path;
}

void AttemptStore::remove_temp(const std::string& folder) {
  const auto path = read_file(folder + "/temp", 4096);
  if (!path) return;
  // The file lies where the stage can write: only what looks like ours is removed.
  const std::string name = path->substr(parent_folder(*path).size() + 1);
  if (path->starts_with('/') && name.starts_with(temp_prefix)) {
    warn(remove_tree(*path), "temp_not_removed");
  }
  ::unlink((folder + "/temp").c_str());
}

Result<PreparedAttempt> AttemptStore::prepare(const AssignAttempt& order,
                                              const std::vector<std::string>& own_environment) {
  NS_TRY(check_ref(order.ref));
  NS_TRY(check_inputs(order));
  PreparedAttempt prepared;
  prepared.folder = attempt_folder(order.ref);
  prepared.log_path = prepared.folder + "/log";
  NS_TRY(make_folders(parent_folder(prepared.folder)));
  if (Status made = make_new_folder(prepared.folder); !made) {
    if (made.error().code == ErrorCode::conflict) {
      made.error().what = "this attempt has run here before, and its log is not overwritten";
      made.error().hint = "a new run needs a new attempt number";
    }
    return std::move(made.error());
  }
  if (Status filled = fill_folder(order, prepared); !filled) {
    // It never ran: the number stays free, unless it already has the stage's state.
    const bool keep = filled.error().code == ErrorCode::out_of_disk;
    if (!keep && !is_folder(prepared.folder + "/state")) {
      remove_temp(prepared.folder);
      warn(remove_tree(prepared.folder), "attempt_folder_not_removed");
    }
    return std::move(filled.error());
  }
  prepared.environment = stage_environment(own_environment, order, prepared.folder, prepared.temp);
  return prepared;
}

Status AttemptStore::fill_folder(const AssignAttempt& order, PreparedAttempt& prepared) {
  NS_TRY(make_new_folder(prepared.folder + "/out"));
  NS_TRY(write_file_durable(prepared.folder + "/spec.json", to_json_text(order.order)));
  NS_TRY_ASSIGN(prepared.temp, make_temp(order, prepared.folder));
  prepared.log.reset(
      ::open(prepared.log_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!prepared.log.is_open()) return errno_error(errno, "create the log", prepared.log_path);
  NS_TRY(make_state(order.ref));  // last: what fails before it leaves the state where it was
  NS_TRY(fsync_path(prepared.folder));
  return fsync_path(parent_folder(prepared.folder));
}

Status AttemptStore::seal(AttemptFinished& result) {
  const std::string out = attempt_folder(result.ref) + "/out";
  NS_TRY_ASSIGN(const Manifest manifest, seal_checkpoint(out));
  result.checkpoint =
      CheckpointInfo{checkpoint_folder(result.ref), manifest.digest(), manifest.total_bytes()};
  return {};
}

AttemptFinished AttemptStore::finish(AttemptFinished draft) {
  AttemptFinished result = std::move(draft);
  const std::string folder = attempt_folder(result.ref);
  const auto spoil = [&result](const Error& error) {
    if (result.outcome == Outcome::ok) {
      result.outcome = outcome_of(error);
      result.reason = "the checkpoint could not be stored: " + error.line();
    } else {
      result.notes.push_back("the result is not on disk: " + error.line());
    }
    result.checkpoint.reset();
  };
  remove_temp(folder);
  result.log_tail = log_tail(folder + "/log");
  if (result.outcome == Outcome::crash) {
    const std::string line = last_line(result.log_tail, 200);
    if (!line.empty()) result.reason += "; the log ends with: " + line;
  }
  if (result.outcome == Outcome::ok) {
    if (Status sealed = seal(result); !sealed) spoil(sealed.error());
  }
  if (Status wrote = write_result(result); !wrote) {
    spoil(wrote.error());
    // What it left cannot be used any more, and its room may be enough for the result.
    warn(remove_tree(folder + "/out"), "out_not_removed");
    warn(write_result(result), "result_not_written");
  }
  return result;
}

Status AttemptStore::write_result(const AttemptFinished& result) {
  return write_file_durable(attempt_folder(result.ref) + "/result.json",
                            result_to_json_text(result));
}

Status AttemptStore::commit(const AttemptRef& ref) {
  NS_TRY(check_ref(ref));
  const std::string folder = attempt_folder(ref);
  const std::string out = folder + "/out";
  const std::string place = checkpoint_folder(ref);
  if (!is_folder(place)) {
    if (!is_file(out + "/" + manifest_name)) {
      return Error{ErrorCode::not_found, "there is no sealed checkpoint to commit", out, ""};
    }
    NS_TRY(make_folders(parent_folder(place)));
    NS_TRY(fsync_path(parent_folder(parent_folder(place))));
    NS_TRY(rename_durable(out, place));
  } else if (is_folder(out)) {
    return Error{ErrorCode::conflict, "another checkpoint is at this place already", place, ""};
  }
  const std::string path = folder + "/result.json";
  if (!is_file(path)) return {};  // acknowledged before
  NS_TRY_ASSIGN(AttemptFinished result, read_result(path));
  if (result.committed) return {};
  result.committed = true;
  return write_result(result);
}

Status AttemptStore::forget(const AttemptRef& ref, bool accepted) {
  NS_TRY(check_ref(ref));
  const std::string folder = attempt_folder(ref);
  const std::string path = folder + "/result.json";
  const auto result = read_result(path);
  const bool good = accepted && result && result->outcome == Outcome::ok;
  if (!good) NS_TRY(remove_tree(folder + "/out"));
  if (good && result->committed) NS_TRY(remove_tree(folder + "/state"));
  if (!is_file(path)) return {};
  if (::rename(path.c_str(), (folder + "/result.acknowledged.json").c_str()) != 0) {
    return errno_error(errno, "rename", path);
  }
  return fsync_path(folder);
}

std::vector<AttemptFinished> AttemptStore::recover() {
  std::vector<AttemptFinished> results;
  const auto list = [](const std::string& path) {
    auto names = list_folder(path);
    return names ? std::move(*names) : std::vector<std::string>();
  };
  const std::string attempts = root_ + "/attempts";
  for (const std::string& job : list(attempts)) {
    for (const std::string& stage : list(attempts + "/" + job)) {
      for (const std::string& number : list(attempts + "/" + job + "/" + stage)) {
        const AttemptRef ref{JobId{number_of(job)}, stage,
                             AttemptNumber{static_cast<std::int32_t>(number_of(number))}};
        if (check_ref(ref)) recover_attempt(ref, results);
      }
    }
  }
  return results;
}

void AttemptStore::recover_attempt(const AttemptRef& ref, std::vector<AttemptFinished>& results) {
  const std::string folder = attempt_folder(ref);
  if (is_file(folder + "/result.acknowledged.json")) return;
  const std::string path = folder + "/result.json";
  if (is_file(path)) {
    auto result = read_result(path);
    if (result && result->ref == ref) {
      // Renamed, but killed before the mark was written.
      if (result->checkpoint && !result->committed && !is_folder(folder + "/out") &&
          is_folder(result->checkpoint->path)) {
        result->committed = true;
        warn(write_result(*result), "result_not_written");
      }
      results.push_back(std::move(*result));
      return;
    }
    log_event("result_unreadable",
              {{"attempt", to_string(ref)},
               {"error", result ? "it is the result of another attempt" : result.error().line()}});
    ::rename(path.c_str(), (path + ".unreadable").c_str());
  }
  remove_temp(folder);
  if (is_folder(folder + "/out")) {
    log_event("attempt_abandoned", {{"attempt", to_string(ref)}});
    warn(remove_tree(folder + "/out"), "out_not_removed");
  }
}

LogChunk AttemptStore::read_log(const LogRequest& request) const {
  LogChunk chunk;
  chunk.request = request.request;
  chunk.ref = request.ref;
  const Status known = check_ref(request.ref);
  auto piece = known ? read_log_piece(log_path(request.ref), request.offset,
                                      std::min(request.bytes_max, log_chunk_bytes_max))
                     : Result<LogPiece>(known.error());
  if (!piece) {
    chunk.error = piece.error().line();
    return chunk;
  }
  chunk.offset = piece->offset;
  chunk.size = piece->size;
  chunk.bytes = std::move(piece->bytes);
  return chunk;
}

Result<AttemptFinished> AttemptStore::read_result(const std::string& path) const {
  NS_TRY_ASSIGN(const std::string text, read_file(path, result_bytes_max));
  return result_from_json(text, path);
}

}  // namespace nightshift
