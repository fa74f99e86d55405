// Writes one seed of wire_fuzz for each message: its number and its body.
//   wire_seeds FOLDER
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/schema/message_examples.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (const nightshift::Message& message : nightshift::test::message_examples()) {
    const nightshift::Frames frames = nightshift::encode(message);
    const std::string path = std::string(argv[1]) + "/" + nightshift::message_name(message);
    std::ofstream file(path, std::ios::binary);
    if (!(file << frames.number << frames.body).flush()) {
      std::fprintf(stderr, "wire_seeds: cannot write %s\n", path.c_str());
      return 1;
    }
  }
}
