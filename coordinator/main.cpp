// The `nightshift` program.
#include <string>
#include <vector>

#include "coordinator/cli/commands.h"

int main(int argc, char** argv) {
  return nightshift::cli::run_cli(std::vector<std::string>(argv + 1, argv + argc));
}
