#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/kernels/support.h"

namespace nightshift::kernels {

TEST_CASE("dispatch: scalar comes first and the fastest is chosen") {
  unsetenv("NIGHTSHIFT_ISA");
  std::string reason;
  const auto backends = usable_backends();
  REQUIRE(!backends.empty());
  CHECK(std::string(backends.front()->name) == "scalar");
  CHECK(choose_backend(reason) == backends.back());
}

TEST_CASE("dispatch: NIGHTSHIFT_ISA forces each usable backend") {
  std::string reason;
  for (const Backend* backend : usable_backends()) {
    setenv("NIGHTSHIFT_ISA", backend->name, 1);
    CHECK(choose_backend(reason) == backend);
  }
  unsetenv("NIGHTSHIFT_ISA");
}

TEST_CASE("dispatch: an unknown name gives null and says what there is") {
  setenv("NIGHTSHIFT_ISA", "mmx", 1);
  std::string reason;
  CHECK(choose_backend(reason) == nullptr);
  CHECK(reason.find("mmx") != std::string::npos);
  CHECK(reason.find("scalar") != std::string::npos);
  unsetenv("NIGHTSHIFT_ISA");
}

TEST_CASE("dispatch: every table is filled") {
  for (const Backend* backend : usable_backends()) {
    // A Backend is nothing but pointers.
    const void* entries[sizeof(Backend) / sizeof(void*)];
    std::memcpy(entries, backend, sizeof(Backend));
    for (const void* entry : entries) CHECK_MESSAGE(entry != nullptr, test::name_of(*backend));
  }
}

TEST_CASE("context: scratch is aligned, kept, counted and independent by slot") {
  test::Runner runner;
  void* first = runner.context.scratch(0, 1000);
  void* second = runner.context.scratch(1, std::size_t{3} << 20);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(second) % 64 == 0);
  CHECK(first != second);
  CHECK(runner.context.scratch(0, 900) == first);
  CHECK(runner.context.scratch_bytes() >= 1000 + (std::size_t{3} << 20));
}

}  // namespace nightshift::kernels
