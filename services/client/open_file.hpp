// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <cstdint>

namespace verbena::cli {

/// An open file, here or on a server. close() reports what writing left undone; after it nothing else is called.
class open_file {
public:
    virtual ~open_file() = default;
    /// At most `count` bytes; fewer only at the end or when the server likes so; none at the end.
    virtual task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) = 0;
    virtual task<result<void>> write(std::uint64_t offset, rpc::payload data) = 0;
    /// Takes away what the file had beyond `length` when it was opened.
    virtual task<result<void>> cut(std::uint64_t length) = 0;
    /// The size that a file which is written is to have, as far as it is known: by that more memory is asked for at once.
    virtual void expect(std::uint64_t) {}
    /// Behind a write that failed: takes away what the file got for bytes that were expected, and that nobody wrote. `end`: of what was written.
    virtual task<result<void>> take_back([[maybe_unused]] std::uint64_t end) { co_return result<void>(); }
    /// What was written is stable (server) or handed to the kernel (local) afterwards.
    virtual task<result<void>> close() = 0;
};

} // namespace verbena::cli
