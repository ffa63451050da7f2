// SPDX-License-Identifier: Apache-2.0
// byte_store: bytes that are no memory, as those of a file, and that a grant may name all the same.
//
// A provider that places in software (capabilities::grants_stores) reads and writes them by calls, through a buffer of its own. So a
// peer reaches a file that nobody has mapped.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::verbs {

/// Bytes at offsets of 64 bits. Several tasks may use it at once, on different shards; nobody puts in order what overlaps.
///
/// This holds for both tasks. Completes when: the bytes are read or written; without suspending where they are at hand. On cancel: what a
/// disk is at goes on to its end, as it can't be recalled; a write that waits for its turn may end with ECANCELED, and writes nothing.
/// Lifetime: the store and the span outlive the task. Shard: any.
class byte_store {
public:
    byte_store() = default;
    byte_store(const byte_store&) = delete;
    virtual ~byte_store() = default;
    /// Fills all of `out` with what stands from `offset` on. What lies behind the end reads as zeros. Errors: those of the disk; also for bytes
    /// that write() could not write: what stands there is older.
    virtual task<result<void>> read(std::uint64_t offset, std::span<std::byte> out) = 0;
    /// Errors: those of the disk; how much was written is then not known, and write_failure() tells of it from then on, but not of ECANCELED.
    virtual task<result<void>> write(std::uint64_t offset, std::span<const std::byte> data) = 0;
    /// Why bytes that write() was given may be lost: the first such error, for ever. Any thread.
    virtual std::error_code write_failure() const noexcept = 0;
};

} // namespace verbena::verbs

#pragma GCC visibility pop
