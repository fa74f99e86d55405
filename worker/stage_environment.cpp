#include "worker/stage_environment.h"

#include <map>

#include "schema/stage_contract.h"

namespace nightshift {

std::string input_variable(const std::string& stage) {
  std::string name = contract::env_input_prefix;
  for (const char c : stage) {
    if (c >= 'a' && c <= 'z') {
      name += static_cast<char>(c - 'a' + 'A');
    } else {
      name += (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    }
  }
  return name;
}

namespace {
bool is_contract_variable(const std::string& name) {
  for (const char* own :
       {contract::env_spec, contract::env_out, contract::env_state, contract::env_attempt,
        contract::env_report_fd, contract::env_retry_reason}) {
    if (name == own) return true;
  }
  return name.starts_with(contract::env_input_prefix);
}
}  // namespace

std::vector<std::string> stage_environment(const std::vector<std::string>& own,
                                           const AssignAttempt& order, const std::string& folder,
                                           const std::string& temp) {
  std::map<std::string, std::string> variables;
  for (const std::string& text : own) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    if (!is_contract_variable(text.substr(0, equals))) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : order.environment) variables[name] = value;
  variables[contract::env_spec] = folder + "/spec.json";
  variables[contract::env_out] = folder + "/out";
  variables[contract::env_state] = folder + "/state";
  variables[contract::env_attempt] = std::to_string(order.ref.attempt.value);
  for (const auto& [stage, path] : order.order.inputs) variables[input_variable(stage)] = path;
  variables.erase(contract::env_retry_reason);
  if (!order.retry_reason.empty()) variables[contract::env_retry_reason] = order.retry_reason;
  variables["TMPDIR"] = temp;

  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) {
    // Neither can be in an environment; a peer may have sent it.
    if (name.empty() || (name + value).find('\0') != std::string::npos) continue;
    if (name.find('=') != std::string::npos) continue;
    environment.push_back(name + "=" + value);
  }
  return environment;
}

}  // namespace nightshift
