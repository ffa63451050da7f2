// SPDX-License-Identifier: Apache-2.0
// One call that came over a stream.
#pragma once

#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/program.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>
#include <verbena/protocols/rpcstream/record_reader.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace verbena::rpc {

class stream_connection;

/// Made when its record is complete, destroyed when its reply was queued or sent. Memory comes from the
/// shard's frame lists, so that a call costs no heap allocation.
class stream_call final : public call {
public:
    stream_call(stream_connection& connection, record&& message, const task_context& context) noexcept;

    static void* operator new(std::size_t size) { return allocate_frame(size); }
    static void operator delete(void* memory, std::size_t size) noexcept { release_frame(memory, size); }

    task<result<payload>> pull(xdr::payload_ref ref) override;
    task<result<void>> join_arguments(std::size_t from) override;
    task<bool> reserve_results(std::size_t size) override;
    void expect_results(std::size_t size) noexcept override;
    sent_in_place sends_in_place() const noexcept override { return sent_in_place::memory_or_file; }
    std::shared_ptr<reverse_channel> reverse() override;

    stream_connection& connection() noexcept { return connection_; }
    const task_context& context() const noexcept { return context_; }
    std::size_t size() const noexcept { return message_.size(); }
    /// Bytes of buffers that its results take, as far as it is known, and arguments that were put in one piece.
    std::size_t expected_results() const noexcept { return expected_results_ + joined_bytes_; }
    /// Bytes of the reply's buffers beyond what they hold of it: a short listing, or a READ at a file's end.
    std::size_t unused_results() const noexcept;
    /// Those of them that are in block().
    std::size_t unused_block() const noexcept
    {
        return block_ ? block_.size() - (fragment_header_size + results_.size()) : 0;
    }

    /// Writes the record mark of the reply, which stands in front of the block of results().
    void mark_reply() noexcept;
    /// What the block of results() and the mark lie in, if that isn't this object.
    const lease& block() const noexcept { return block_; }
    /// The i-th of attached(), to be emptied.
    attachment& attached_at(std::size_t i) noexcept { return attached_[i]; }

private:
    /// What join_arguments() made, and what follows it in the second piece.
    xdr::decoder joined_arguments() const noexcept;
    /// Whether args() is at an item of that.
    bool reads_joined() const noexcept;

    stream_connection& connection_;
    record message_;
    task_context context_;
    std::size_t expected_results_ = 0;
    lease block_;
    lease joined_;                  // arguments of two pieces in one
    std::size_t joined_from_ = 0;   // its position in the record
    std::size_t joined_behind_ = 0; // bytes of the second piece in it
    std::size_t joined_bytes_ = 0;  // of all buffers that were taken for it
    unsigned joins_ = 0;
    // Not initialised: a reply is written before it is read.
    std::array<std::byte, fragment_header_size + success_header_size + inline_results> inline_;
};

} // namespace verbena::rpc
