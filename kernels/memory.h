// Aligned memory for weights and scratch. Knows pages; must not know what is stored in them.
#pragma once

#include <cstddef>
#include <memory>

namespace nightshift::kernels {

// 64-byte aligned; blocks of 2 MiB and more start on a 2 MiB boundary and ask for huge pages, since
// page faults cost more than the copy that causes them. Throws std::bad_alloc.
void* allocate_block(std::size_t bytes);
void free_block(void* block);

// The same, owned.
std::shared_ptr<void> make_block(std::size_t bytes);

}  // namespace nightshift::kernels
