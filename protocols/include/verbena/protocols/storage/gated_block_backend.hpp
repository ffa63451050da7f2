// SPDX-License-Identifier: Apache-2.0
// gated_block_backend: the base of filters on block devices that let an operation pass, make it wait or refuse it.
#pragma once

#include <verbena/protocols/storage/block_backend.hpp>
#include <verbena/protocols/storage/block_operation.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// One call of a device, as its gate sees it.
struct block_call {
    block_backend& below;
    std::string_view client; ///< as for_client() was told; empty for whoever uses the filter itself
    block_operation operation = block_operation::flush;
    bool flag = false; ///< write()'s `through`, write_zeroes()'s `keep`
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::span<std::byte> into = {};       ///< of a read
    std::span<const std::byte> from = {}; ///< of a write

    /// What it moves, or has the disk write: `length` of a read, a write and a write_zeroes, else 0.
    std::uint64_t bytes() const noexcept
    {
        const bool moves = operation == block_operation::read || operation == block_operation::write ||
                           operation == block_operation::write_zeroes;
        return moves ? length : 0;
    }
    /// The same for the first `n` bytes, at most `length`. A flush has none.
    block_call first(std::uint64_t n) const noexcept;
    /// Has it done by the back end below. Completes when: it is done. On cancel: as the function of block_backend that it stands for. Errors:
    /// those of that function. Lifetime: the same. Shard: any.
    task<result<void>> run() const;
};

/// A filter with one gate that operations pass before they reach the back end below. What is not gated goes there as it is, without a
/// coroutine frame of the filter's own. Bytes are those below, for every client: what changes them derives from block_backend.
class gated_block_backend : public block_backend {
public:
    /// Owns `below`.
    explicit gated_block_backend(std::unique_ptr<block_backend> below) noexcept : below_(std::move(below)) {}

    std::string_view kind() const noexcept override { return below_->kind(); }
    block_properties properties() const noexcept override { return below_->properties(); }
    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) final;
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) final;
    task<result<void>> flush() final;
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) final;
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) final;
    std::unique_ptr<block_backend> for_client(std::string_view client) final;

protected:
    /// The device that the filter stands on: of this client, where clients are told apart.
    block_backend& below() noexcept { return *below_; }
    /// Whether `op` passes the gate. The same for as long as the filter lives.
    virtual bool gates(block_operation op) const noexcept = 0;
    /// Whether it matters to the gate who asks.
    virtual bool tells_clients_apart() const noexcept { return false; }
    /// The gate. What it fails with is what the operation is answered with, which is then not done by anybody but the gate.
    ///
    /// Completes when: the operation may pass, or is refused. On cancel: a wait ends, ECANCELED, or goes on: the filter says so.
    /// Errors: errno values. Lifetime: `c` lives until the operation ends. Shard: the caller's.
    virtual task<result<void>> enter(const block_call& c) = 0;
    /// Told after an operation that passed and failed below.
    virtual void failed_below(const block_call& c) noexcept { (void)c; }

private:
    class client_view;
    task<result<void>> pass(block_call c);
    task<result<void>> take(const block_call& c);

    const std::unique_ptr<block_backend> below_;
};

} // namespace verbena::storage

#pragma GCC visibility pop
