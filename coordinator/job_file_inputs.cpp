#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "coordinator/job_file.h"
#include "schema/content_hash.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

Error missing(const std::string& what, const std::string& where, const std::string& hint) {
  return Error{ErrorCode::not_found, what, where, hint};
}

// Readable now by this user, and not empty.
std::optional<Error> check_input(const std::string& path, const std::string& who) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    Error error = errno_error(errno, "find the data of " + who, path);
    error.hint = "relative paths begin at the folder of the job file";
    return error;
  }
  if (::access(path.c_str(), R_OK) != 0) return errno_error(errno, "read the data of " + who, path);
  if (S_ISDIR(status.st_mode)) return std::nullopt;
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, "the data of " + who + " is not a file", path, ""};
  }
  if (status.st_size == 0) {
    return Error{ErrorCode::invalid_argument, "the data of " + who + " is empty", path, ""};
  }
  return std::nullopt;
}

std::optional<Error> check_model(const std::string& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) {
    return missing("the model folder is not there", folder,
                   "relative paths begin at the folder of the job file");
  }
  if (::access((folder + "/config.json").c_str(), R_OK) != 0) {
    return missing("the model folder has no config.json that can be read", folder,
                   "model.path is a folder as Hugging Face writes it");
  }
  return std::nullopt;
}

std::optional<Error> check_zone(const JobSpec& spec) {
  const std::string zones = "/usr/share/zoneinfo";
  std::error_code failed;
  // Without the database nothing can be said about a name.
  if (spec.night.zone.empty() || !fs::is_directory(zones, failed)) return std::nullopt;
  if (fs::is_regular_file(zones + "/" + spec.night.zone, failed)) return std::nullopt;
  return missing("night.zone: there is no time zone `" + spec.night.zone + "`", spec.source_path,
                 "names are like Asia/Shanghai or Europe/Berlin");
}

Result<std::string> digest_once(std::map<std::string, std::string>& known, const std::string& path,
                                bool is_folder) {
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  NS_TRY_ASSIGN(const std::string digest, is_folder ? hash_folder(path) : hash_file(path));
  return known[path] = digest;
}

}  // namespace

Result<std::string> read_job_file(const std::string& path) {
  // Not blocking: a pipe at this path would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_error(errno, "open the job file", path);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{ErrorCode::invalid_argument, "the job file is not a regular file", path, ""};
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > job_file_bytes_max) {
    ::close(fd);
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the job file has {} bytes, the most is {}", size, job_file_bytes_max),
                 path, "is this the right file?"};
  }
  std::string text;
  char buffer[65536];
  while (text.size() <= job_file_bytes_max) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int saved = errno;
      ::close(fd);
      return errno_error(saved, "read the job file", path);
    }
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

std::vector<Error> check_job_files(const JobSpec& spec) {
  std::vector<Error> errors;
  const auto add = [&](std::optional<Error> error) {
    if (error) errors.push_back(std::move(*error));
  };
  add(check_model(spec.model_path));
  add(check_zone(spec));
  std::set<std::string> seen;
  for (const StageSpec& stage : spec.stages) {
    const std::string& model = stage.model_path;
    if (!model.empty() && seen.insert(model).second) add(check_model(model));
    for (const std::string& path : stage.inputs) {
      if (seen.insert(path).second) add(check_input(path, "stage " + stage.name));
    }
  }
  return errors;
}

Status digest_inputs(JobSpec& spec) {
  NS_TRY_ASSIGN(spec.model_digest, hash_folder(spec.model_path));
  std::map<std::string, std::string> known;
  for (StageSpec& stage : spec.stages) {
    if (!stage.model_path.empty()) {
      NS_TRY_ASSIGN(stage.model_digest, digest_once(known, stage.model_path, true));
    }
    stage.input_digests.clear();
    for (const std::string& path : stage.inputs) {
      std::error_code failed;
      const bool is_folder = fs::is_directory(path, failed);
      NS_TRY_ASSIGN(stage.input_digests[path], digest_once(known, path, is_folder));
    }
  }
  return {};
}

}  // namespace nightshift
